"""Everyday questions in pieces: words, sentences, clauses, amounts."""

import re
from dataclasses import dataclass
from itertools import pairwise


class Outside(Exception):
    """Why a question is outside the model's language, as the end of a sentence."""


# ---- Words


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
ONES += "fifteen sixteen seventeen eighteen nineteen"
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {word: n for n, word in enumerate(ONES.split())}
NUMBER_WORDS |= {word: 10 * n for n, word in enumerate(TENS.split(), 2)}
NUMBER_WORDS |= {"hundred": 100}

# Verbs by what they do to what somebody has; irregular forms follow a slash. Some can do both.
VERB_KINDS = {
    "have": "have/has/had own hold/held contain carry weigh start",
    "come": "come/came arrive join enter hatch land appear born added",
    "cost": "cost",
    "need": "need want",
    "put": "put pack place arrange store stack seat sit/sat fit plant",
    "share": "share divide split distribute cut",
    "give": "give/gave/given bring/brought lend/lent hand send/sent donate share pass return",
    "loss": "lose/lost sell/sold eat/ate/eaten use break/broke/broken drop spend/spent pay/paid "
    "throw/threw/thrown drink/drank/drunk delete remove pop burn waste borrow melt die fly/flew "
    "fall/fell/fallen go/went/gone swim/swam leave escape run/ran disappear move plant return peel "
    "cook take/took/taken pick read sew paint cut rot tear/tore/torn feed/fed crash wilt "
    "steal/stole/stolen",
    "gain": "buy/bought find/found get/got make/made pick win/won collect receive earn bake gather "
    "adopt order grow/grew save score take/took/taken catch/caught build/built draw/drew/drawn "
    "read sell/sold run/ran walk drive/drove jump swim/swam cook write/wrote paint knit sew count "
    "see/saw do/did plant produce hear/heard fill pack eat/ate drink/drank",
}
# Of verbs in both tables these are losses whatever is asked.
ALWAYS_LOST = words_of("sell sells sold eat eats ate eaten drink drinks drank")
BE = words_of("is are was were be")
PRONOUNS = words_of("he she it they i we you them")
RECIPIENTS = words_of("him her me them us you")
ARTICLES = words_of("a an the his her their my our your its some one")
ADVERBS = words_of(
    "now then also still only just already later today so next too again finally initially all "
    "altogether total there yesterday tomorrow tonight"
)
EACH = words_of("each every per apiece")
PREPOSITIONS = words_of(
    "in on at to from for of with by after before during into among between out off onto inside "
    "until since near under over around"
)
UNITS = words_of("day days week weeks month months year years hour hours minute minutes")
CONJUNCTIONS = frozenset(("and", "but", ",", "then", "while", "who", "when", "that", "because"))
MORE = frozenset(("more", "another", "additional", "extra", "other"))
AUXILIARIES = words_of("do does did can could will would should has have had") | BE
FIRST = words_of("first before originally beginning initially start")
TOGETHER = words_of("together altogether total combined all both they we")
LEFT = words_of("left remain remains remaining still over keep keeps")
# After a number these are verbs: “5 left”, but not “5 drops”.
INTRANSITIVE = words_of(
    "come came arrive arrived join joined leave left die died pop popped fly flew go went swim "
    "swam escape escaped fell fall melt melted broke disappeared crashed entered landed hatched"
)
PHRASE_ENDS = frozenset(("than", "as", "left", "away", "back", "up", "equally", "evenly"))
NEVER = {
    "fractions": "half halves third thirds quarter quarters fifth fraction fractions",
    "percentages": "percent percentage",
    "averages": "average mean",
    "areas and perimeters": "area perimeter",
    "probabilities": "probability chance",
    "powers and roots": "square squared root power",
    "ratios": "ratio",
    "prime numbers": "prime",
    "times of day": "am pm o'clock",
    "dates": "date",
    "rounding": "round",
    "remainders": "mod remainder",
    "units of measure": "convert",
    "numbers above 999": "thousand thousands million millions",
}
UNKNOWN = {word: topic for topic, words in NEVER.items() for word in words.split()}


def forms(verbs: str) -> dict[str, str]:
    """Every form of the verbs, with the form of the third person."""
    table: dict[str, str] = {}
    for entry in verbs.split():
        base, *irregular = entry.split("/")
        third = base + ("es" if base.endswith(("s", "ch", "sh", "o", "x")) else "s")
        past = base + ("d" if base.endswith("e") else "ed")
        if base.endswith("y") and base[-2] not in "aeiou":
            third, past = base[:-1] + "ies", base[:-1] + "ied"
        third = "has" if base == "have" else third
        table |= dict.fromkeys((base, third, past, base + base[-1] + "ed", *irregular), third)
    return table


VERBS_OF = {kind: forms(verbs) for kind, verbs in VERB_KINDS.items()}
VERBS = {form for table in VERBS_OF.values() for form in table}


def kinds_of(verb: str) -> set[str]:
    return {kind for kind, table in VERBS_OF.items() if verb in table}


def third_person(verb: str) -> str:
    return next((table[verb] for table in VERBS_OF.values() if verb in table), verb)


def singular(noun: str) -> str:
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    if noun.endswith(("ches", "shes", "xes", "sses")):
        return noun[:-2]
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def refuse(words: list[str]) -> Outside:
    return Outside("it does not understand “" + " ".join(words).replace(" ,", ",") + "”")


# ---- Sentences and clauses

REWRITES = (
    (r"(?<=\d),(?=\d{3}\b)", ""),
    (r"[$€£]\s?(\d+)", r"\1 dollars"),
    (r"\b(\d+) ?(?:euros?|pounds|bucks|dollar)\b", r"\1 dollars"),
    (r"\b(\d+)(km|kg|cm|m|g|l)\b", r"\1 \2"),
    (r"\b(what|how|who|there|he|she|it)'s\b", r"\1 is"),
    (r"\b(mr|mrs|ms|dr)\.", r"\1"),
    (r"\bhalf a dozen\b", "6"),
    (r"\b(?:a|one|1) dozen\b", "12"),
    (r"\ba couple of\b", "2"),
    (r"\b(\w+) dozen\b", r"\1 boxes of 12"),
    (r"\b(?:had|has|have) been\b", "were"),
    (r"\btwice as\b|\bdouble the\b", "2 times as"),
    (r"\b(\d+)-year-old\b", r"\1 years old"),
    (r"\bthe (?:two|2) (?:boys|girls|friends|children|kids|people)\b", "they"),
    (r"\b(?:gets?|got) on\b", "come"),
    (r"\b(?:gets?|got) off\b", "leave"),
)


def normalised(text: str) -> str:
    """The question in lower case with numbers in digits and money in dollars."""
    text = text.lower().replace("’", "'")
    for pattern, instead in REWRITES:
        text = re.sub(pattern, instead, text)
    if re.search(r"\b(each|every|per|a) day\b", text):
        text = re.sub(r"\b(in|during|over|for) (a|one) week\b", r"\1 7 days", text)
    text = re.sub(r"[a-z]+(-[a-z]+)?", in_digits, text)
    return re.sub(r"\b([a-z]+) one\b", lambda m: f"{m[1]} 1" if m[1] in VERBS else m[0], text)


def in_digits(match: re.Match[str]) -> str:
    """A number word as digits; `one` stays, as it may be no number."""
    first, _, last = match[0].partition("-")
    if first not in NUMBER_WORDS or first == "one" or (last and last not in NUMBER_WORDS):
        return match[0]
    return str(NUMBER_WORDS[first] + (NUMBER_WORDS[last] if last else 0))


def sentences(text: str) -> list[list[str]]:
    """Words and commas of every sentence; a condition comes before its question."""
    parts: list[list[str]] = []
    for sentence in re.split(r"[.?!;:]+(?!\d)", text):
        words = re.findall(r"\d+|[^\W\d_]+(?:['-][^\W\d_]+)*|,", sentence)
        how = words.index("how") if "how" in words else -1
        if how > 0 and any(word.isdigit() for word in words[:how]):
            parts += [words[words[0] == "if" : how], words[how:]]
        elif how == 0 and "if" in words:
            at = words.index("if")
            parts += [words[at + 1 :], words[:at]]
        elif words:
            parts.append(words)
    return parts


@dataclass(frozen=True)
class Clause:
    """Who does what: words before the verb, the verb and what it can do, words after it."""

    subject: list[str]
    verb: str
    rest: list[str]
    kinds: set[str]
    is_passive: bool = False

    @property
    def words(self) -> list[str]:
        return [*self.subject, self.verb, *self.rest]

    def refused(self) -> Outside:
        return refuse(self.words)


def is_verb(words: list[str], at: int) -> bool:
    """Whether a word is the verb of a clause, not a noun, an adjective or `left` after `has`."""
    word, before = words[at], words[at - 1] if at else ""
    if word in BE:
        return True
    if word == "left":
        nearby = words[max(0, at - 4) : at]
        return at > 0 and not any(w in VERBS or w in BE for w in nearby)
    if word not in VERBS or before in PREPOSITIONS | EACH | ARTICLES | BE:
        return False
    if before.isdigit():
        return word in INTRANSITIVE
    is_auxiliary = word in VERBS_OF["have"] and any(w in VERBS for w in words[at + 1 : at + 2])
    return not is_auxiliary


def clauses(words: list[str]) -> list[Clause]:
    """A sentence as clauses; one without a subject of its own has that of the one before."""
    verbs = [at for at in range(len(words)) if is_verb(words, at)]
    parts: list[Clause] = []
    start = 0
    for at, following in pairwise([*verbs, len(words)]):
        end = following
        if following < len(words):
            cuts = [k for k in range(at + 1, following) if words[k] in CONJUNCTIONS]
            end = cuts[-1] if cuts else following
        subject = words[start:at]
        while subject and subject[0] in CONJUNCTIONS | ADVERBS - {"there"}:
            subject = subject[1:]
        rest = words[at + 1 : end]
        while rest and rest[-1] in CONJUNCTIONS:
            rest = rest[:-1]
        start = end
        before = parts[-1].subject if parts else []
        parts.append(clause_of(subject or before, words[at], rest))
    return parts


def clause_of(subject: list[str], verb: str, rest: list[str]) -> Clause:
    """A clause with what its verb can do; `were sold` is one verb."""
    if verb in BE and rest and rest[0] in VERBS and rest[0] != "left":
        return Clause(subject, rest[0], rest[1:], kinds_of(rest[0]), is_passive=True)
    kinds = {"be"} if verb in BE else {"loss"} if verb == "left" else kinds_of(verb)
    return Clause(subject, verb, rest, kinds)


# ---- Amounts


@dataclass(frozen=True)
class Amount:
    """A number of things, or `count` holders with `number` things each."""

    number: int
    noun: str
    count: int = 0
    is_more: bool = False


def noun_of(words: list[str]) -> str:
    """The noun at the beginning of some words, behind its adjectives."""
    ends = PREPOSITIONS | CONJUNCTIONS | EACH | RECIPIENTS | ADVERBS | PHRASE_ENDS
    noun = ""
    for word in words:
        if word in ends:
            break
        noun = noun if word in MORE | ARTICLES else word
    return noun


def amounts(words: list[str]) -> list[Amount]:
    places = [k for k, word in enumerate(words) if word.isdigit()] + [len(words)]
    result: list[Amount] = []
    at = 0
    while at + 1 < len(places):
        here, after = places[at], places[at + 1]
        between = words[here + 1 : after]
        noun, number = noun_of(between), int(words[here])
        at += 1
        if at + 1 < len(places) and (packed := packs(words, here, after, places[at + 1])):
            result.append(packed)
            at += 1
        else:
            result.append(Amount(number, noun, is_more=bool(MORE & set(between))))
    return result


def packs(words: list[str], first: int, second: int, end: int) -> Amount | None:
    """Two numbers that belong together: `3 boxes of 4 pens`, `4 pens in each of 3 boxes`."""
    between, tail = words[first + 1 : second], words[second + 1 : end]
    one, other = int(words[first]), int(words[second])
    links = [w for w in between if w in PREPOSITIONS | CONJUNCTIONS or w in VERBS_OF["have"]]
    if "each" in between and links and links[-1] == "of":
        return Amount(one, noun_of(between), count=other)
    if links and links[-1] in {"of", "with", "containing", *VERBS_OF["have"]}:
        return Amount(other, noun_of(tail), count=one)
    if links and links[-1] in ("in", "on", "for") and EACH & set(tail):
        raise refuse(words[first:end])
    return None


def only_amount(words: list[str]) -> Amount:
    result = amounts(words)
    if len(result) != 1:
        raise refuse(words)
    return result[0]


def has_number(words: list[str]) -> bool:
    return any(word.isdigit() for word in words)
