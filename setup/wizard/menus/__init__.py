"""What each question offers on a machine, and when it is asked at all."""
