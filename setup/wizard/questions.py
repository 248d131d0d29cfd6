"""What setup asks, in the order of asking. The menus stand in `setup/wizard/menus`."""

from __future__ import annotations

from setup.wizard.menus import cards, conversation, download, models
from setup.wizard.question import Question

QUESTIONS: tuple[Question, ...] = (
    Question(
        key="vendor",
        flag="--backend",
        title="NVIDIA or AMD?",
        why=lambda s: "Both makers' cards are usable here, but they cannot share a model.",
        more=(
            "A model is computed by one backend: cuda for NVIDIA, hip for AMD. The other maker's "
            "cards stay free for other programs."
        ),
        needs=("cuda", "hip"),
        applies=cards.has_two_makers,
        menu=cards.makers,
    ),
    Question(
        key="cards",
        flag="--gpus",
        title="Which cards?",
        why=lambda s: "The more experts lie on cards, the faster a model answers.",
        more=(
            "Several cards share a model by layers: each computes its own and hands on to the "
            "next. A card of less than 12 GB beside a larger one slows the reading of prompts "
            "down. --gpus 0,2 names any others, and the first named one computes layer 0."
        ),
        needs=("cuda", "hip"),
        applies=cards.has_cards,
        menu=cards.cards,
    ),
    Question(
        key="family",
        flag="--model (a size or a GGUF file) or --family",
        title="Which model?",
        why=models.why_family,
        more=(
            "A family is one model in several sizes; the next question asks for the size. A GGUF "
            "file of a supported architecture may be named by its path. --models-dir DIR looks "
            "for files in another folder."
        ),
        applies=lambda s: s.answers.file is None and s.answers.size is None,
        menu=models.families,
        read=models.read_file,
        typed="the path of a GGUF file",
        settle=models.settle_family,
    ),
    Question(
        key="size",
        flag="--model",
        title="Which size?",
        why=models.why_size,
        more=(
            "The first number is the download, and RAM is what the machine should have. A size "
            "that is called tight runs, but leaves little to other programs. Low memory means "
            "that experts lie on the cards or are read from the file."
        ),
        applies=lambda s: s.answers.file is None,
        menu=models.sizes,
        settle=models.settle_size,
    ),
    Question(
        key="keep",
        flag="--model",
        title="Keep this size?",
        why=models.doubt,
        more=(
            "Nothing is refused: a size that is too large can be set up, and runs as far as the "
            "machine lets it. It may page to the disk, or fail to start."
        ),
        applies=lambda s: s.answers.size is not None and bool(models.doubt(s)),
        menu=models.keep,
        settle=models.settle_keep,
    ),
    Question(
        key="spread",
        flag="--gpu or --gpus",
        title="One card with a memory budget, or several without?",
        why=cards.why_spread,
        more=(
            "With a budget, only some experts are held in memory and the rest is read from the "
            "file. A split over cards has no budget: memory must hold the whole model."
        ),
        needs=("layer_split",),
        applies=cards.may_spread,
        menu=cards.spread,
        settle=cards.settle_spread,
    ),
    Question(
        key="single",
        flag="--gpu",
        title="Which one of these cards?",
        why=cards.why_one,
        more="The other cards stay free for other programs, or for a second server.",
        needs=("cuda", "hip"),
        applies=cards.must_be_one,
        menu=cards.singles,
        settle=cards.settle_single,
    ),
    Question(
        key="context",
        flag="--context",
        title="How long may a conversation be?",
        why=lambda s: "Prompt and answers together, in tokens. Each costs memory for every slot.",
        more=(
            "A token is about three quarters of an English word. A longer context takes memory "
            "even while it is not used. When a conversation reaches the end, a request is refused "
            "with a message that says so."
        ),
        applies=lambda s: s.subject is not None,
        menu=conversation.contexts,
        read=conversation.read_context,
        typed="a number of tokens such as 24k",
    ),
    Question(
        key="rope",
        flag="--rope-scaling",
        title="How should positions be scaled?",
        why=conversation.why_rope,
        more=(
            "YaRN keeps near positions exact and stretches far ones. Linear stretches all alike. "
            "Both cost quality on short texts, so a context that the model allows itself is better "
            "where it is enough."
        ),
        needs=("rope_scaling",),
        applies=conversation.beyond_training,
        menu=conversation.ropes,
    ),
    Question(
        key="kv",
        flag="--kv",
        title="How should keys and values be stored?",
        why=lambda s: "They are the memory of a conversation, and grow with its context.",
        more=(
            "int8 keeps one byte a number and is close to fp16, which keeps two. The 4-bit "
            "formats are smaller and lose more, most of all in long conversations."
        ),
        applies=conversation.long_enough_for_int8,
        menu=conversation.kv_formats,
    ),
    Question(
        key="kv_streaming",
        flag="--kv-streaming",
        title="Keep most keys and values outside the card?",
        why=lambda s: "That leaves more of the card to experts.",
        more=(
            "The attention of this model reads every token, so whatever lies in the machine's "
            "memory is read over the bus again for each new token. It saves room on the card and "
            "costs speed in long conversations."
        ),
        needs=("kv_streaming",),
        applies=conversation.may_stream,
        menu=conversation.streaming,
    ),
    Question(
        key="images",
        flag="--vision",
        title="Should it read images?",
        why=lambda s: "The encoder of images is one more download of 0.9 GB.",
        more=(
            "On the card it takes 1.4 GB of its memory, and images are read in full size. On the "
            "processor it takes none, images are made smaller, and reading one takes seconds."
        ),
        needs=("vision",),
        applies=lambda s: s.subject is not None,
        menu=conversation.images,
    ),
    Question(
        key="download",
        flag="--download or --no-download",
        title="Download it now?",
        why=download.why_download,
        more=(
            "A download goes on where it stopped when it is cut off. Without it the config is "
            "written all the same, and says where the file is expected."
        ),
        applies=download.may_download,
        menu=download.download,
    ),
)

WRITE = Question(
    key="write",
    flag="--yes or --dry-run",
    title="Write this?",
    why=lambda s: (
        "An older file is kept as .bak. --parallel, --port, --thinking or --instruct and others "
        "are set by flags: strata setup --help."
    ),
    more="Nothing has been written so far. No other file than this one is touched.",
    applies=lambda s: True,
    menu=download.write,
)
"""Asked last, after the summary."""
