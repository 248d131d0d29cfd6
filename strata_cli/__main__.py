"""`python -m strata_cli` is `strata`."""

from strata_cli.main import main

main()
