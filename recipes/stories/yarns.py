"""Stories with all that somebody may ask for: who, with whom, what about, where, in what weather, and to do what.

What is asked for is drawn first; then a request is put together that says it, and a story in which each part of it comes
at the beginning, in the middle and at the end. Requests are as people type them, in many orders; what is not in one may
be anything. yarns.txt has the plots by what they turn on, and the sentences that weave the rest in.
"""
import re

from facts import capital
from pools import ADJECTIVES, ANIMALS, AT, CHILD, FAMILY, FEARED, LIKED, MORE_ANIMALS, SCENERY, SHE_NAMES, SLOTS, WISHES, Pools, article
from scenes import one_way
from texts import read_parts
from tales import REQUESTS, SHORT_REQUESTS, plural
from worlds import BEAST_NAMES, HOUSES, LOVES

THIRD = {"fly": "flies", "carry": "carries", "try": "tries", "cross": "crosses", "catch": "catches", "touch": "touches", "wash": "washes", "go": "goes", "buy": "buys",
         "have": "has", "teach": "teaches"}
PAST = """bake baked|build built|paint painted|find found|mend mended|win won|see saw|learn learned|catch caught|climb climbed|cross crossed|grow grew|plant planted|
    make made|cook cooked|draw drew|fly flew|sail sailed|ride rode|open opened|write wrote|sing sang|play played|dance danced|touch touched|visit visited|get got|
    cheer cheered|help helped|save saved|clean cleaned|buy bought|sell sold|hide hid|bring brought|carry carried|stay stayed|count counted|stop stopped|
    ring rang|wake woke|tame tamed|tell told|become became|wear wore|knit knitted|sew sewed|wash washed|repair repaired|drive drove|invent invented|collect collected|
    keep kept|give gave|have had|go went|join joined|explore explored|guard guarded""".replace("\n", "").replace("    ", "")
PAST = dict(p.split() for p in PAST.split("|"))
DOUBLED = {"win", "knit", "get", "stop"}
WEATHERS = [("on a windy day", "wind"), ("on a rainy day", "rain"), ("in the snow", "snow"), ("on a foggy morning", "fog"), ("in a storm", "storm"), ("in winter", "winter"),
            ("in summer", "summer"), ("on a hot summer day", "summer"), ("at night", "night"), ("in autumn", "autumn"), ("in spring", "spring"), ("on a cold winter night", "winter"),
            ("when the sun shines", "sun"), ("under the stars", "stars"), ("on a birthday", "birthday"), ("at Christmas", "Christmas"), ("in the moonlight", "moon")]
STORY = """a story|a story|a story|a story|a short story|a bedtime story|a little story|a tale|a fairy tale|a funny story|a sad story|a happy story|a sweet story|an exciting story|
    a scary story|a silly story|an adventure story|a nice story|a very short story|a short tale|a fable|a children's story|a good-night story|a short bedtime story|a simple story""".replace("\n", "").replace("    ", "").split("|")
OPENINGS = """Tell me {s}|Tell me {s}|Please tell me {s}|Can you tell me {s}|Could you tell me {s}|Write {s}|Write {s}|Write me {s}|Please write {s}|Can you write {s}|Could you please write {s}|
    I would like {s}|I'd like {s}|I want {s}|I want to hear {s}|We would like to hear {s}|Make up {s}|Invent {s}|Give me {s}|Tell us {s}|Tell my son {s}|Tell my little sister {s}|
    Tell the children {s}|Can I hear {s}|May I have {s}|Can we have {s}|Let me hear {s}|Read me {s}|Do you have {s}|Would you tell me {s}|Will you tell me {s}|How about {s}|{S}|{S}|{S}|
    Create {s}|Think up {s}|Help me with {s}|I need {s}|Share {s}|It's bedtime. Tell me {s}|Hi! Please tell me {s}|Hello, can you write {s}|Before I go to sleep, tell me {s}|
    It is raining outside. Tell me {s}|My son cannot sleep. Tell him {s}|Today I feel like {s}|For my class I need {s}|My little brother wants {s}|Surprise me with {s}""".replace("\n", "").replace("    ", "").split("|")
BARE = ["story about {}", "a story: {}", "Story: {}", "{} - please make a story of it", "bedtime story about {}", "tell me about {}", "Tell me about {}, as a story.", "Tell me about {}.",
        "What happened to {}? Tell me the story.", "Once there was {}. Go on!", "short story, {}", "Tell the story of {}.", "Write the story of {}.", "I want to read about {}.",
        "Write something about {}.", "Write about {}.", "Topic: {}", "fairy tale about {}", "An adventure of {}, please."]
TAILS = ["", "", "", "", "", "", "", "", "", " Thank you!", " It should have a happy ending.", " Keep it short.", " Make it funny.", " Not too long, please.", " It is for a child of five.",
         " Please give it a title.", " For children, please.", " With a good ending.", " Use simple words.", " It's for my niece."]
LISTS_OF = ["There should be {} in it.", "It must have {} in it.", "I want {} in it.", "It has to be about {}.", "Please put in {}.", "Let it have {}.", "{} must be in the story.", "Use {}."]
WORDS_OF = ["Write a story with these words: {}.", "Use these words in a story: {}.", "Make a story from the words {}.", "A story with {}, please.", "{}: make a story of these.",
            "Write a story that has the words {} in it.", "Story words: {}", "Tell me a story with {}.", "Tell a story with {} in it.", "Can you put {} in one story?"]
CHILDREN_OF = ["My {child} {name} loves {many}. ", "My {child} {name} likes {many} very much. ", "My {child} is called {name} and loves {many}. ", "{name} is my {child}. {He} loves {many}. "]
FOR_THEM = ["Tell {him} a story about {both}.", "Please write a story for {him} about {both}.", "Make up a story with {both}.", "Can you tell a story in which {name} meets {one}?",
            "Write a story where {one} plays with {name}.", "Tell a story in which {one} is a friend of {name}."]


def third(phrase):
    verb, _, rest = phrase.partition(" ")
    return f"{THIRD.get(verb, verb + 's')} {rest}".strip()


def past(phrase):
    verb, _, rest = phrase.partition(" ")
    return f"{PAST[verb]} {rest}".strip()


def gerund(phrase):
    verb, _, rest = phrase.partition(" ")
    said = verb + verb[-1] if verb in DOUBLED else verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb
    return f"{said}ing {rest}".strip()


def read_yarns():
    """{what a plot turns on: [paragraphs]}, {what is woven in: [(beginning, middle, end)]}"""
    plots, weaves = {}, {}
    for head, *lines in read_parts("yarns.txt"):
        if head.startswith("@ "):
            plots.setdefault(head[2:], []).append(lines)
        else:
            weaves[head[2:]] = [line.split(" | ") for line in lines]
    return plots, weaves


PLOTS, WEAVES = read_yarns()


class Yarn:
    """What is asked for, and the words of the story about it."""

    def __init__(self, rng, pools):
        self.rng, self.pools, self.taken = rng, pools, set()
        self.kind = pools.kind(rng)
        self.name, self.girl = self.named(self.kind)
        self.alike = rng.random() < 0.2 # two heroes of a kind: two brothers
        self.friend = self.kind if self.alike else pools.kind(rng, {self.kind})
        self.other, self.other_girl = self.named(self.friend, self.girl if self.alike and self.kind in CHILD else None)
        self.adjective = rng.choice(ADJECTIVES)
        self.colour = rng.choice(SLOTS["adj"] if rng.random() < 0.3 else "red blue green yellow black white brown purple pink orange golden silver wooden old new magic lost broken big tiny".split())
        self.t = pools.thing(rng, {self.kind, self.friend})
        self.p = rng.choice(SCENERY)
        self.vp = self.fill_wish(rng.choice(WISHES))
        self.liked, self.fear = rng.choice(LIKED), rng.choice(FEARED)
        self.when, self.weather = rng.choice(WEATHERS)
        self.met = False
        self.turn = rng.choice(sorted(PLOTS) + ["alone", "alone", "two", "gift", "wish"])
        self.word = plural(self.kind) if rng.random() < 0.5 else ("sisters" if self.girl else "brothers") if self.kind in CHILD and rng.random() < 0.6 else "friends"
        self.with_friend = self.turn in ("two", "visit") or rng.random() < 0.25
        self.alike = self.alike and self.turn != "visit"
        self.extras = [] if rng.random() < 0.45 else rng.sample([e for e in ("thing", "place", "weather") if e != self.turn], rng.choice((1, 1, 1, 2)))
        if self.turn in ("lost", "found", "broken", "gift") and "thing" in self.extras:
            self.extras.remove("thing")

    def named(self, kind, girl=None):
        name, she = self.pools.person(self.rng, self.taken)
        while girl is not None and she != girl:
            name, she = self.pools.person(self.rng, self.taken)
        if kind in ANIMALS and self.rng.random() < 0.4:
            name = self.rng.choice([n for n in BEAST_NAMES if n not in self.taken])
            self.taken.add(name)
        she = {"girl": True, "boy": False, "king": False, "prince": False, "queen": True, "princess": True, "witch": True, "mermaid": True, "grandmother": True, "grandma": True,
               "aunt": True, "mother": True, "sister": True, "grandfather": False, "grandpa": False, "uncle": False, "father": False, "brother": False, "wizard": False, "fisherman": False,
               "policeman": False, "postman": False, "snowman": False, "waitress": True, "hen": True, "rooster": False, "cow": True}.get(kind, she)
        while kind in CHILD + FAMILY and (name in SHE_NAMES) != she:
            name, _ = self.pools.person(self.rng, self.taken)
        return name, she

    def fill_wish(self, text):
        def put(match):
            art, slot = match.groups()
            if slot == "his":
                return "her" if self.girl else "his"
            word = self.kind if slot == "kind" else self.pools.thing(self.rng, {self.kind}) if slot == "thing" else self.rng.choice(SCENERY) if slot == "place" else \
                self.rng.choice([w for w in SLOTS[slot] if w != self.kind])
            return article(word) if art else word
        return re.sub(r"\{(a:)?([a-z]+\d?)\}", put, text)

    # ---- The story ---------------------------------------------------------------------------

    def hero(self):
        child = self.kind in CHILD
        if self.alike and self.with_friend:
            return self.name
        return self.rng.choice((self.name, self.name, f"the {self.kind}", f"the {self.kind}", self.name if child else f"{self.name} the {self.kind}"))

    def the_other(self):
        kind, name = self.friend, self.other
        if not self.met:
            self.met = True
            return self.rng.choice((f"{article(kind)} named {name}", f"{article(kind)} called {name}"))
        return name if self.alike or self.rng.random() < 0.5 else f"the {kind}"

    def both(self):
        """The two heroes at the beginning."""
        if self.alike:
            return f"two {self.word} named {self.name} and {self.other}"
        return f"{article(self.kind)} {self.rng.choice(('named', 'called'))} {self.name} and {article(self.friend)} {self.rng.choice(('named', 'called'))} {self.other}"

    def value(self, slot):
        she, other = self.girl, self.other_girl
        table = {"A": self.name, "B": self.other, "t": self.t, "at": article(self.t), "c": self.colour, "p": self.p, "inp": f"{AT.get(self.p, 'in')} the {self.p}", "vp": self.vp,
                 "vpd": past(self.vp), "ving": gerund(self.vp), "L": self.liked, "F": self.fear, "he": "she" if she else "he", "his": "her" if she else "his", "him": "her" if she else "him",
                 "himself": "herself" if she else "himself", "Bhe": "she" if other else "he", "Bhis": "her" if other else "his", "Bhim": "her" if other else "him",
                 "kind": self.kind, "friend": self.friend, "w": self.weather, "when": self.when, "home": self.rng.choice(HOUSES), "love": self.rng.choice(LOVES),
                 "act": article(f"{self.colour} {self.t}"), "adj": self.adjective, "akind": article(self.kind), "ap": article(self.p),
                 "W_at": capital(article(self.t)), "L_cap": capital(self.liked), "adj_kind": article(f"{self.adjective} {self.kind}"), "both": self.both()}
        if slot in ("h", "x"):
            return self.hero() if slot == "h" else self.the_other()
        return table[slot]

    def fill(self, text):
        def put(match):
            slot = match.group(1)
            if slot in ("H", "X", "He", "His", "Vp", "When", "Ving", "Both"):
                return capital(self.value(slot[0].lower() + slot[1:]))
            return self.value(slot)
        return re.sub(r"\{([A-Za-z_]+)\}", put, one_way(text, self.rng))

    def tell(self):
        """The story: its plot, with what else was asked for at its beginning, in its middle and at its end."""
        r = self.rng
        paragraphs = [*r.choice(PLOTS[self.turn])]
        if self.with_friend and self.turn not in ("two", "visit", "friend"):
            self.extras = ["friend"] + self.extras
        middle = 1 if len(paragraphs) < 4 else r.choice((1, 2))
        for extra in self.extras:
            begins, mids, ends = WEAVES[extra]
            paragraphs[0] += " " + r.choice(begins)
            paragraphs[middle] = f"{paragraphs[middle]} {r.choice(mids)}"
            paragraphs[-1] += " " + r.choice(ends)
        if self.alike and self.with_friend:
            begins, mids, ends = WEAVES["alike"]
            paragraphs[0] += " " + r.choice(begins).replace("{word}", self.word)
            paragraphs[middle] += " " + r.choice(mids).replace("{word}", self.word)
            paragraphs[-1] += " " + r.choice(ends).replace("{word}", self.word)
        self.met = self.turn == "two"
        return "\n\n".join(self.fill(p).strip() for p in paragraphs)

    # ---- The request -------------------------------------------------------------------------

    def who(self):
        """The hero as asked for, and in the title."""
        r, kind, name = self.rng, self.kind, self.name
        child, title = kind in CHILD, f"The {' '.join(w.capitalize() for w in kind.split())}"
        both = f"{name} the {kind.capitalize()}" if not child else name
        draw = r.random()
        if kind in FAMILY and r.random() < 0.5:
            return r.choice((f"a {kind} named {name}", f"my {kind} {name}", article(f"{self.adjective} {kind}"))), name if draw < 0.5 else title
        if draw < 0.2:
            return f"{article(kind)} {r.choice(('named', 'called', 'named', 'whose name is'))} {name}", both
        if draw < 0.3:
            return article(f"{self.adjective} {kind}"), title
        if draw < 0.38:
            return f"{article(f'{self.adjective} {kind}')}{r.choice((' named', ' called', ','))} {name}", both
        if draw < 0.46:
            return (name, name) if child or r.random() < 0.4 else (f"{name} the {kind}", both)
        if draw < 0.5 and child:
            return f"a {r.choice(('little', 'young', 'small'))} {kind}", title
        if draw < 0.54:
            return f"{r.choice(('the', 'one', 'some'))} {kind}", title
        return article(kind), title

    def pair(self):
        """Both heroes as asked for, and in the title."""
        r = self.rng
        names = f"{self.name} and {self.other}"
        if self.alike:
            draw = r.random()
            if draw < 0.25:
                return f"two {self.word}", f"Two {self.word.capitalize()}"
            return (f"two {self.word}{r.choice((', ', ' named ', ' called '))}{names}" if draw < 0.7 else f"the {self.word} {names}"), names
        draw = r.random()
        one, _ = self.who()
        if draw < 0.25:
            return names, names
        title = f"The {self.kind.capitalize()} and the {self.friend.capitalize()}"
        if draw < 0.4:
            return f"{one} and {article(self.friend)}{r.choice((' named ', ' called '))}{self.other}", title
        if draw < 0.5:
            return f"{self.name} the {self.kind} and {self.other} the {self.friend}", title
        if draw < 0.6:
            return f"{article(self.friend)} and {one}", title
        return f"{one} and {article(self.friend)}", title

    def turns(self):
        """(a relative clause, words that go with "and" or "with") of what the plot turns on."""
        r, his = self.rng, "her" if self.girl else "his"
        t, ct = self.t, article(f"{self.colour} {self.t}")
        his_t = f"{his} {self.t if r.random() < 0.6 else f'{self.colour} {self.t}'}"
        a_t = article(t) if r.random() < 0.6 else ct
        return {
            "wish": ([f"who wants to {self.vp}", f"that tries to {self.vp}", f"who learns to {self.vp}", f"who {third(self.vp)}", f"that wanted to {self.vp}", f"who {past(self.vp)}",
                      f"who dreams of {gerund(self.vp)}", f"{gerund(self.vp)}", f"who cannot {self.vp}", f"who would like to {self.vp}"], None),
            "lost": ([f"who loses {his_t}", f"who lost {his_t}", f"who cannot find {his_t}", f"looking for {his_t}", f"that is looking for {a_t}", f"whose {t} is gone", f"whose {t} was stolen",
                      f"who forgets {his_t}", f"that loses {a_t}"], f"a lost {t}"),
            "found": ([f"who finds {a_t}", f"that found {a_t}", f"who discovers {a_t}", f"finding {a_t}", f"who sees {a_t}", f"who picks up {a_t}", f"who digs up {a_t}"], a_t),
            "broken": ([f"whose {t} is broken", f"whose {t} breaks", f"who breaks {his_t}", f"with a broken {t}", f"who broke {a_t}", f"who repairs {a_t}", f"whose {t} does not work any more",
                        f"who mends {a_t}"], f"a broken {t}"),
            "gift": ([f"who gets {a_t}", f"who gets {a_t} as a present", f"who has {a_t}", f"with {a_t}", f"and {his_t}", f"and {a_t}", f"and {a_t}", f"and {a_t}", f"who wants {a_t}", f"who gives away {his_t}", f"who is given {a_t}"], a_t),
            "place": ([f"{AT.get(self.p, 'in')} the {self.p}", f"who goes to the {self.p}", f"who visits {article(self.p)}", f"who lives {AT.get(self.p, 'in')} {article(self.p)}", f"and {article(self.p)}",
                       f"who works {AT.get(self.p, 'in')} the {self.p}", f"lost {AT.get(self.p, 'in')} the {self.p}", f"who discovers {article(self.p)}", f"on the way to the {self.p}"], article(self.p)),
            "fear": ([f"who is afraid of {self.fear}", f"that was scared of {self.fear}", f"afraid of {self.fear}", f"who fears {self.fear}", f"who is not afraid of {self.fear} any more",
                      f"who stops being afraid of {self.fear}"], None),
            "liked": ([f"who loves {self.liked}", f"who likes {self.liked}", f"that loved {self.liked}", f"who is crazy about {self.liked}", f"who wants more {self.liked}", f"and {his} {self.liked}",
                       f"who only thinks of {self.liked}", f"who cannot live without {self.liked}"], self.liked),
            "two": ([f"who become friends", f"who are friends", f"who quarrel", f"and their friendship", f"who help each other", f"who go on a trip", "", "", "", ""], None),
            "visit": ([f"who is visited by {article(self.friend)}", f"who meets {article(self.friend)}", f"who visits {article(self.friend)}", f"who helps {article(self.friend)}",
                       f"who is helped by {article(self.friend)}", f"who goes to see {self.other}", f"who gets a visit from {article(self.friend)} named {self.other}", f"who finds a friend, {self.other}"],
                      article(self.friend)),
            "alone": (["", "", "", "who learns something", "who is alone", "and a big surprise", "who has an adventure"], None),
        }[self.turn]

    def request(self):
        """(request, title)"""
        r = self.rng
        clauses, thing = self.turns()
        clause = r.choice(clauses)
        about, title = self.pair() if self.turn == "two" or self.with_friend and self.turn != "visit" else self.who()
        plural_hero = self.turn == "two" or self.with_friend and self.turn != "visit"
        if plural_hero and re.match(r"(?:who|that) \w+s\b|who is|that (?:was|is)", clause):
            clause = {"wish": f"who want to {self.vp}", "lost": f"and the lost {self.t}", "found": f"who find {article(self.t)}", "broken": f"and a broken {self.t}", "gift": f"and {article(self.t)}",
                      "place": f"{AT.get(self.p, 'in')} the {self.p}", "fear": f"who are afraid of {self.fear}", "liked": f"who love {self.liked}"}.get(self.turn, clause)
        more = []
        for extra in self.extras:
            if extra == "thing":
                more.append(r.choice((f"and {article(self.t)}", f"with {article(self.t)}", f"and {'their' if plural_hero else 'her' if self.girl else 'his'} {self.t}")))
            elif extra == "place":
                more.append(r.choice((f"{AT.get(self.p, 'in')} the {self.p}", f"{AT.get(self.p, 'in')} {article(self.p)}")))
            elif extra == "weather":
                more.append(self.when)
        draw = r.random()
        if draw < 0.25: # as most people ask
            subject = " ".join(p for p in (about, clause, *more) if p)
            return r.choice(REQUESTS + SHORT_REQUESTS).format(subject), title
        draw = r.random()
        if "weather" not in self.extras and draw < 0.08 and self.words(thing):
            return self.words(thing), title
        if draw < 0.14 and self.turn in ("alone", "two", "gift", "liked", "visit") and not more and self.kind not in FAMILY and not self.alike and not plural_hero:
            return self.for_a_child(), f"{self.other} and the {self.kind.capitalize()}"
        subject = " ".join(p for p in (about, clause, *more) if p)
        if draw < 0.24 and (thing or more):
            listed = [p.removeprefix("and ").removeprefix("with ") for p in more if not re.match("in|at|on|near|under|when", p)] + ([thing] if thing else [])
            where = [p for p in more if re.match("in|at|on|near|under|when", p)]
            if listed:
                story = r.choice(STORY) + (f" that happens {where[0]}" if where else "")
                return self.ask(story) + " " + r.choice(LISTS_OF).format(" and ".join([about] + listed)), title
        if draw < 0.4 and re.match(r"(?:who|that) (?!become|are|quarrel|help each|go on)\w+", clause) and not plural_hero:
            said = clause.split(" ", 1)[1]
            story = f"{r.choice(STORY)} {r.choice(('in which', 'where', 'in which', 'about how'))} {' '.join([about, said, *more])}"
            return self.ask(story), title
        if draw < 0.5:
            return r.choice(BARE).format(subject), title
        return self.ask(f"{r.choice(STORY)} {r.choice(('about', 'about', 'about', 'about', 'of', 'with'))} {subject}"), title

    def ask(self, story):
        r = self.rng
        said = r.choice(OPENINGS)
        question = re.search(r"(?:Can|Could|May|Do|Would|Will) (?:you|I|we)|How about|can you", said)
        said = said.format(s=story, S=capital(story))
        draw = r.random()
        if said.startswith(("A ", "An ")) and draw < 0.6:
            said += ", please"
        elif draw < 0.1 and not said.startswith(("Please", "Could you please")):
            said += ", please"
        said += "?" if question else "."
        said += r.choice(TAILS)
        if r.random() < 0.12:
            said = (said[0].lower() + said[1:]).rstrip(".?")
        return said

    def words(self, thing):
        """A request that only lists words; None if the plot turns on none."""
        r = self.rng
        words = [self.kind] + ([self.friend] if self.with_friend or self.turn in ("two", "visit") else []) + ([self.t] if "thing" in self.extras or self.turn in ("lost", "found", "broken", "gift") else []) + \
                ([self.p] if "place" in self.extras or self.turn == "place" else []) + ([self.liked] if self.turn == "liked" else [])
        if len(words) < 2 or self.kind == self.friend:
            return None
        r.shuffle(words)
        frame = r.choice(WORDS_OF)
        with_articles = [w if w == self.liked else article(w) for w in words] if "with {}" in frame or "put {}" in frame else words
        joined = ", ".join(with_articles[:-1]) + (" and " if r.random() < 0.6 or with_articles is not words else ", ") + with_articles[-1]
        return capital(frame.format(joined))

    def for_a_child(self):
        """"My daughter N loves kinds": the child is in the story as the friend."""
        r = self.rng
        self.friend, self.other_girl = ("girl", True) if self.other in SHE_NAMES else ("boy", False)
        self.with_friend = True
        name, he, him = self.other, "she" if self.other_girl else "he", "her" if self.other_girl else "him"
        child = r.choice(("daughter", "granddaughter", "niece", "sister", "friend") if self.other_girl else ("son", "grandson", "nephew", "brother", "friend"))
        one = article(self.kind)
        said = r.choice(CHILDREN_OF).format(child=child, name=name, many=plural(self.kind), He=capital(he))
        return said + r.choice(FOR_THEM).format(him=him, name=name, one=one, both=r.choice((f"{name} and {one}", f"{one} and {name}")))


def yarn(rng, pools=Pools()):
    """(request, title, story)"""
    one = Yarn(rng, pools)
    request, title = one.request()
    return request, title, one.tell()
