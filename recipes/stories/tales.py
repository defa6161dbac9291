"""Stories, and requests that are made from what is in them.

A small model keeps to the subject it was asked for only if requests and stories were tied together
often enough. The stories come with a title at best. So each one is given in several forms: as a text
alone, with the request that it came with, and with requests that are made from what is in it: its
animals, people and things, by name where they have one ("a little fox named Finn"). In most forms the
hero is exchanged for another one all through the story, an animal for an animal, a girl for a robot:
what cannot be guessed from the plot must be copied from the request. And what is asked for is in the
story's first sentences, so that there is no way to begin it without.
"""
import collections
import re

MAX_STORY = 3300        # bytes; about 850 tokens: an answer ends within a context of 1024
MAX_EXPLANATION = 3300  # longer texts are read, but nobody asks for them
FIRST = 170             # bytes of a first sentence: a story says there what it is about,
EARLY = 300             # and here by what name
N_NAMED = 0             # more forms with a request by name only,
N_THING = 4             # of a story about a thing or a place,
N_BECOME = 5           # of a girl's or boy's story that becomes an animal's or another person's,
N_EXCHANGED = 5        # of a story about an animal or a person that others can replace

ANIMALS = """bear bee bird bunny butterfly camel cat chicken cow crab crow deer dog dolphin donkey dragon
    duck eagle elephant elk firefly fish fox frog giraffe goat goose hamster hare hedgehog horse kangaroo
    kitten koala lamb lion lizard lobster monkey moose mouse octopus otter owl panda parrot peacock penguin
    pig pigeon pony puppy rabbit raccoon rat raven seal shark sheep sloth snail snake sparrow spider
    squirrel swan tiger tortoise turtle unicorn whale wolf zebra""".split()
PEOPLE = """accountant actor alien artist astronaut baker captain chef clown cowboy dancer detective doctor
    explorer fairy farmer firefighter fisherman ghost giant grandfather grandmother inventor journalist
    king knight lawyer librarian magician mermaid monster musician nurse painter photographer pilot pirate
    policeman prince princess queen ranger robot sailor scientist singer soldier teacher thief waitress
    witch wizard writer""".split()
THINGS = """airport attic ball balloon bakery beach bicycle boat bookshop bridge cabin cake camera
    castle cave cellar circus cottage desert diary doll ferry flower forest fountain garden guitar harbor
    hat hospital hotel island jungle key kite lake lantern letter library lighthouse locket machine map
    market mask mirror mountain museum necklace orchard painting parade piano picnic portal potion pumpkin
    rainbow restaurant ring river rocket school ship spaceship storm subway swamp telescope tent theater
    toy train treasure tree treehouse tunnel umbrella violin watch well""".split()
THE = """moon sun sea ocean sky""".split()
SUBJECTS = {w: kind for kind, words in
            (("animal", ANIMALS), ("person", PEOPLE), ("thing", THINGS), ("the", THE)) for w in words}
PLURALS = {"mouse": "mice", "goose": "geese", "wolf": "wolves", "thief": "thieves", "deer": "deer",
           "elk": "elk", "fish": "fish", "sheep": "sheep", "moose": "moose", "policeman": "policemen",
           "fisherman": "fishermen", "lobster": "lobsters"}
EXCHANGED = set(ANIMALS) | set("""alien artist astronaut baker chef clown cowboy dancer detective doctor
    explorer farmer ghost giant inventor knight librarian magician monster musician painter pilot pirate
    robot sailor scientist singer teacher wizard""".split())
OBJECTS = set("""ball balloon bicycle boat camera doll guitar hat key kite lantern letter machine map mask
    mirror necklace painting piano ring rocket telescope toy train treasure umbrella violin watch""".split())
PLACES = set("""attic bakery beach bookshop bridge cabin castle cave cellar circus cottage desert forest
    garden harbor hospital hotel island jungle lake library lighthouse market mountain museum orchard
    restaurant river school swamp theater treehouse tunnel""".split())
GROUPS = [EXCHANGED & set(ANIMALS), EXCHANGED - set(ANIMALS), OBJECTS, PLACES]
WHO = "girl|boy|man|woman|child|" + "|".join(ANIMALS + PEOPLE)

NOT_NAMES = set("""I The A An And But He She It They We You His Her Their My Your As When Then There That
    This What Who How Why Where So Once One Mr Mrs Ms Dr Miss Mom Dad Mother Father Grandma Grandpa
    Grandmother Grandfather Aunt Uncle Sir Lady King Queen Prince Princess God Monday Tuesday Wednesday
    Thursday Friday Saturday Sunday January February March April May June July August September October
    November December Christmas Professor Captain Doctor Amazon Earth Mars English American French Japanese German Chinese Italian Old New San Los
    Street Avenue Park Lake Mount River City Town North South East West""".split())


def plural(word):
    if word in PLURALS:
        return PLURALS[word]
    if re.search(r"(s|x|z|ch|sh)$", word):
        return word + "es"
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + "s"


FORMS = {form: word for word in SUBJECTS for form in (word, plural(word))}
WORD = re.compile("[A-Za-z]+")


def with_article(phrase):
    return ("an " if phrase[0].lower() in "aeiou" and not phrase.startswith(("uni", "one")) else "a ") + phrase


# ---- Reading -----------------------------------------------------------------------------------

MARKS = {"’": "'", "‘": "'", "“": '"', "”": '"', "\ufeff": "", "\r": "", "â€™": "'", "â€˜": "'",
         "â€œ": '"', "â€¦": "...", "â€”": "-", "â€“": "-"}  # the long ones: UTF-8 read as Windows-1252


def straight(text):
    for curly, plain in sorted(MARKS.items(), key=lambda m: -len(m[0])):
        text = text.replace(curly, plain)
    return re.sub("â€\u0082?\u009d?", '"', text)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return straight(file.read())


def synthetic(folder, kind):
    """(request, text) pairs."""
    for part in ("train", "val"):
        for record in read(f"{folder}/{kind}.{part}.txt").split("<end>"):
            request, start, text = record.partition("<start>")
            request, text = request.strip(), text.strip()
            if start and request and text:
                yield request, text


def tiny_stories(path):
    """Paragraphs of a story have a blank line between them, stories have none."""
    story = []
    blank = True
    for line in read(path).split("\n"):
        if line.strip() and story and not blank:
            yield "\n\n".join(story)
            story = []
        if line.strip():
            story.append(line.strip())
        blank = not line.strip()
    if story:
        yield "\n\n".join(story)


# ---- What a story is about ---------------------------------------------------------------------

def subjects(text):
    """Words of SUBJECTS that a story is about: they come early and often. Animals and people first."""
    counts, first = collections.Counter(), {}
    for match in WORD.finditer(text):
        word = FORMS.get(match.group().lower())
        if word:
            counts[word] += 1
            first.setdefault(word, match.start())
    found = [w for w, n in counts.most_common()
             if n >= 3 and first[w] < FIRST]
    return sorted(found, key=lambda w: SUBJECTS[w] not in ("animal", "person"))


def names(text, least=3):
    """Names that come at least so many times within sentences, the most frequent first."""
    counts = collections.Counter(re.findall(r"(?<=[a-z,] )([A-Z][a-z]{2,})\b", text))
    return [w for w, n in counts.most_common() if n >= least and w not in NOT_NAMES]


def phrase_of(word, text, rng):
    """The subject as a request would have it: "a little fox named Finn", "owls", "the moon"."""
    if SUBJECTS[word] == "the":
        return "the " + word
    found = re.search(rf"\b{word} (?:named|called) ([A-Z][a-z]+)\b", text)
    if found and rng.random() < 0.6:
        return f"{with_article(word)} named {found.group(1)}"
    found = re.search(rf"\ban? ((?:[a-z]+ ){{1,2}}{word})\b(?! [a-z]+ed\b)", text)
    if found and rng.random() < 0.35 and not re.search(r"\b(of|and|the|to|in|as|for)\b", found.group(1)):
        return with_article(found.group(1))
    return plural(word) if rng.random() < 0.08 else with_article(word)


REQUESTS = ["Write a bedtime story about {}.", "Write a story about {}.", "Tell me a story about {}.",
            "Tell a story about {}.", "Can you tell me a story about {}?", "Please write a story about {}.",
            "Write a children's story about {}.", "I would like to hear a story about {}.",
            "Could you write a story about {}?", "A story about {}, please.", "I want a story about {}.",
            "Write a story for children about {}.", "Make up a story about {}.", "Tell us a tale about {}.",
            "Write me a story about {}.", "Tell my son a story about {}.", "Tell my daughter a story about {}."]
FIRESIDE_REQUESTS = ["Tell a campfire story about {}.", "Tell me a scary story about {}.",
                     "Tell a ghost story about {}.", "Tell me a campfire story about {}."]
SHORT_REQUESTS = ["Write a short story about {}.", "Tell me a short story about {}.",
                  "Write a very short bedtime story about {}."]


def request_for(text, fireside, rng, hero=None):
    """A request that the text answers and a title to match it, or None. hero: what its hero became."""
    found, who = subjects(text), names(text)
    if hero:
        found = [hero] + [w for w in found if w != hero]
    titled = re.search(rf"\b({WHO}) (?:named|called) ([A-Z][a-z]+)\b", text[:EARLY])
    if titled and rng.random() < (0.3 if found else 0.6):
        about = [f"{with_article(titled.group(1))} named {titled.group(2)}"]
        kind = "" if titled.group(1) in ("girl", "boy", "man", "woman", "child") else f" the {titled.group(1).capitalize()}"
        title = [titled.group(2) + kind]
        found = [w for w in found if w != titled.group(1)]
    elif found:
        word = found.pop(0 if hero or rng.random() < 0.8 else rng.randrange(min(3, len(found))))
        about, title = [phrase_of(word, text, rng)], [f"The {word.capitalize()}"]
    elif who:
        about, title = who[:1], who[:1]
        found = []
    else:
        return None
    if found and rng.random() < 0.5:
        about.append(phrase_of(found[0], text, rng))
        title.append(f"the {found[0].capitalize()}")
    elif not titled and len(who) > 1 and rng.random() < 0.1:
        about.append(who[1])
        title.append(who[1])
    short = len(text) < 1200 and rng.random() < 0.5
    ask = FIRESIDE_REQUESTS if fireside and rng.random() < 0.7 else SHORT_REQUESTS if short else REQUESTS
    return rng.choice(ask).format(" and ".join(about)), " and ".join(title)


# ---- Other animals, other names ----------------------------------------------------------------

def like(model, word):
    return word.upper() if model.isupper() and len(model) > 1 else word.capitalize() if model[0].isupper() else word


def exchange_subject(text, rng, hero=None):
    """Other animals for the (two) animals that a story is about, other people for the people ..."""
    for old in [w for w in subjects(text)[:2] if w != hero]:
        for group in GROUPS:
            if old in group:
                text = exchange(old, group, text, rng)
    return text


def exchange(old, group, text, rng):
    said = {FORMS.get(w.lower()) for w in WORD.findall(text)}
    new = rng.choice(sorted(group - said))

    def put(match):
        article, noun = match.group(1), match.group(2)
        word = like(noun, plural(new) if noun.lower() == plural(old) != old else new)
        if not article:
            return word
        return like(article, with_article(word).split()[0]) + " " + word
    return re.sub(rf"(?:\b([Aa]n?) )?\b({old}|{plural(old)})\b", put, text, flags=re.I)


HERO = re.compile(r"\b(girl|boy) (?:named|called) ([A-Z][a-z]+)\b")


def become(text, rng):
    """The girl or boy that a story begins with as an animal or as another person, and as which."""
    hero = HERO.search(text, 0, EARLY)
    if not hero:
        return text, None
    child, name = hero.groups()
    said = {FORMS.get(w.lower()) for w in WORD.findall(text)}
    new = rng.choice(sorted(EXCHANGED - said))
    text = re.sub(rf"\b([Aa]) {child}\b", lambda m: like(m.group(1), with_article(new).split()[0]) + " " + new, text)
    text = re.sub(rf"\b{child}\b", new, text)

    def mention(match):
        return match.group() if rng.random() < 0.5 else f"{name} the {new}" if rng.random() < 0.4 else f"The {new}"
    head, tail = text[:hero.end() + 20], text[hero.end() + 20:]
    return head + re.sub(rf"(?<=[.!?\n] ){name}(?= [a-z])|(?<=\n){name}(?= [a-z])", mention, tail), new


def gender(text):
    he, she = len(re.findall(r"\b(?:he|his|him)\b", text)), len(re.findall(r"\b(?:she|her)\b", text))
    return "he" if he > 2 * she else "she" if she > 2 * he else "?"


def name_pools(texts):
    """Names of heroes by the pronoun that goes with them; no words that are written small, too."""
    words = collections.Counter(w for t in texts for w in re.findall(r"\b[a-z]+\b", t))
    counts = collections.Counter((n, gender(t)) for t in texts for n in names(t)[:1])
    pools = {"he": [], "she": [], "?": []}
    for name in sorted({n for n, _ in counts}):
        if words[name.lower()] > 2:
            continue
        he, she = counts[name, "he"], counts[name, "she"]
        if he + she >= 2:
            pools["?"].append(name)
        if he >= 2 and he > 4 * she:
            pools["he"].append(name)
        if she >= 2 and she > 4 * he:
            pools["she"].append(name)
    return pools


def exchange_names(text, pools, rng):
    for old in names(text)[:1]: # the hero; of the others the pronouns are not known
        new = rng.choice(pools[gender(text)])
        if not re.search(rf"\b{new}\b", text):
            text = re.sub(rf"\b{old}\b", new, text)
    return text


# ---- Writing -----------------------------------------------------------------------------------

def untitled(text):
    """The text without a title of its own: a first line without the end of a sentence."""
    first, _, rest = text.partition("\n")
    return rest.strip() if rest and len(first) < 100 and not re.search(r"[.!?,:\"')]$", first.strip()) else text


def chat(request, text):
    return {"messages": [{"role": "user", "content": request}, {"role": "assistant", "content": text}]}


def forms(request, text, pools, held_out, rng):
    """A story as documents of the corpus."""
    if len(text.encode()) > MAX_STORY:
        yield {"text": text}
        return
    fireside = bool(request and "campfire" in request)
    yield {"text": text}
    if request:
        yield chat(request, text)
    about, child = set(subjects(text)[:1]), bool(HERO.search(text, 0, EARLY))
    n = N_EXCHANGED if about & EXCHANGED else N_BECOME if child else N_THING if about else N_NAMED
    for i in range(1 + n):
        version, hero = text, None
        if i > 0:
            version = exchange_names(version, pools, rng)
        if i > 0 and child and not about & EXCHANGED:
            version, hero = become(version, rng)
        if i > 0:
            version = exchange_subject(version, rng, hero)
        if hero and len(re.findall(rf"\b{hero}", version)) < 3:
            continue # is hardly spoken of
        asked, title = request_for(version, fireside, rng, hero) or (None, None)
        if asked and asked not in held_out:
            yield chat(asked, f"**{title}**\n\n{untitled(version)}")
