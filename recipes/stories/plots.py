"""Stories from plots.txt, with what was asked for: who the hero is, and what happens to it.

A story is new each time: hero, friend and things are drawn, and sentences have (ways|to say) them. What is asked for
comes first in the plot's lines that begin with "@", and is in the story from beginning to end.
"""
import re

from fables import KINDS, SHE
from scenes import LISTS, MORE_BOYS, MORE_GIRLS, Cast, made_up_name, one_way
from texts import read_parts
from tales import ANIMALS, REQUESTS, SHORT_REQUESTS, with_article
from worlds import BEAST_NAMES, BOYS, GIRLS, HOUSES, KIND_WORDS, LOVES
from facts import capital

MORE_REQUESTS = ["I'd like a story about {}.", "Story about {}", "Tell me about {} in a story.", "Please tell me a story about {}.", "tell me a story about {}",
                 "write a story about {}", "Can you write a short story about {}?", "Could you tell me a bedtime story about {}?", "Write a tale about {}.",
                 "Invent a story about {}.", "I need a bedtime story about {}.", "Write a little story about {}, please.", "Give me a story about {}.",
                 "A bedtime story about {}.", "Write a fairy tale about {}.", "Tell me a fairy tale about {}.", "Make up a bedtime story about {}."]
PLACES = "the old mill|the dark cellar|the deep forest|the cave|the high tower|the old well|the empty barn|the swamp|the ruins".split("|")
INPLACES = "in the forest|in the big city|in the mountains|in the fog|in the desert|in the jungle|in a cave|in the swamp|in the woods|in a strange town".split("|")
WHENS = ("One morning,One day,One sunny day,One evening,One rainy afternoon,Early one morning,One windy day,On a warm summer day,On a cold day,"
         "One quiet afternoon,On the first day of spring,One Sunday").split(",")
PLOT_WORDS = {
    "can": "swim|sing|paint|dance|cook|read|skate|juggle|whistle|write poems|climb trees|ride a bicycle|play the piano|play the guitar|draw|bake bread|"
           "dive|tell stories|do magic tricks|play chess|ski|row a boat|count to a hundred|knit|play the flute|surf|play football|speak French".split("|"),
    "food": "cake|bread|cheese|soup|pizza|honey|apple pie|cookies|pancakes|sandwiches".split("|"),
    "food1": "cake|pie|pizza|pudding|apple pie|chocolate cake|carrot cake|birthday cake|pancake|loaf of bread".split("|"),
    "robot": "Bolt,Rusty,Beep,Tik,Otto,Zip,Max,Clank,Robby,Gizmo".split(","),
    "inplace": INPLACES, "placeX": PLACES, "when": WHENS, "when2": [w[0].lower() + w[1:] for w in WHENS],
}


def read():
    """[(what is asked for, paragraphs)]"""
    return [(first[2:].split(" | "), paragraphs) for first, *paragraphs in read_parts("plots.txt")]


PLOTS = read()


class Tale(Cast):
    """The words of one story: slots, and the mentions of its two heroes."""

    def __init__(self, rng):
        super().__init__(rng)
        self.kind = self.draw_kind()
        self.girl["A"] = self.kind in SHE or self.kind != "boy" and rng.random() < 0.45
        self.friend = self.draw_kind(self.kind)
        self.girl["B"] = self.friend in SHE or self.friend != "boy" and rng.random() < 0.45
        self.put["A"], self.put["B"] = self.name_of(self.kind, "A"), self.name_of(self.friend, "B")
        self.put["kind"], self.met = self.kind, False
        self.taken |= {self.kind, self.friend}
        self.adjective = rng.choice(KIND_WORDS)

    def listed(self):
        return LISTS | PLOT_WORDS

    def draw_kind(self, other=None):
        kinds = ANIMALS if self.rng.random() < 0.55 else KINDS if self.rng.random() < 0.5 else ("girl", "boy")
        return self.rng.choice([k for k in kinds if k != other])

    def name_of(self, kind, who):
        if self.rng.random() < 0.15:
            return self.fresh([made_up_name(self.rng)])
        return self.fresh(BEAST_NAMES if kind in ANIMALS else (GIRLS + MORE_GIRLS) if self.girl[who] else (BOYS + MORE_BOYS))

    def hero(self):
        name = self.put["A"]
        child = self.kind in ("girl", "boy")
        return self.rng.choice((name, name, f"the {self.kind}", f"the {self.kind}", name if child else f"{name} the {self.kind}", f"the little {self.kind}" if child else name))

    def other(self):
        name, kind = self.put["B"], self.friend
        child = kind in ("girl", "boy")
        if not self.met:
            self.met = True
            return self.rng.choice((f"{with_article(kind)} named {name}", f"{with_article(kind)} called {name}", f"{name} the {kind}" if not child else f"{with_article(kind)} called {name}"))
        return self.rng.choice((name, name, f"the {kind}"))

    def begin(self):
        r, home, adjective, kind, name = self.rng, self.rng.choice(HOUSES), with_article(self.adjective), self.kind, self.put["A"]
        he = "she" if self.girl["A"] else "he"
        first = r.choice((f"Once upon a time, there was {adjective} {kind} named {name}, who lived {home}.", f"Once there was {adjective} {kind} called {name}. {capital(he)} lived {home}.",
                          f"{capital(home)} there lived {adjective} {kind} called {name}.", f"Long ago, {adjective} {kind} named {name} lived {home}.",
                          f"There once was {adjective} {kind} called {name}.", f"{name} was {adjective} {kind} who lived {home}."))
        return first + r.choice(("", "", f" {name} loved to {r.choice(LOVES)}.", f" Everybody liked {name}."))

    def value(self, slot, number):
        if slot in ("H", "h"):
            return capital(self.hero()) if slot == "H" else self.hero()
        if slot in ("X", "x") and not number:
            return capital(self.other()) if slot == "X" else self.other()
        if slot == "X":
            return self.put["B"]
        if slot == "him" and number:
            return "her" if self.girl["B"] else "him"
        if slot == "begin":
            return self.begin()
        key = slot + number
        if slot in PLOT_WORDS and key not in self.put:
            self.put[key] = self.fresh(PLOT_WORDS[slot])
        return super().value(slot, number)

    def request(self, want):
        """What is asked for, in words, and the story's title."""
        r, name, kind = self.rng, self.put["A"], self.kind
        draw = r.random()
        child = kind in ("girl", "boy")
        who = (f"{with_article(kind)} named {name}" if draw < 0.25 else f"{with_article(self.adjective)} {kind}" if draw < 0.4 else
               f"{name} the {kind}" if draw < 0.5 and not child else f"a little {kind}" if draw < 0.55 else with_article(kind))
        title = name if draw < 0.25 or child else f"{name} the {kind.capitalize()}" if draw < 0.5 else f"The {kind.capitalize()}"
        said = self.fill(want)
        if want.startswith("about "):
            return said[6:], title
        if not re.match(r"(?:who|that|whose|and|in|on|at|with|learning|looking|lost)\b", said) or want.startswith("the smallest"):
            return said, title
        if want.startswith("and ") and r.random() < 0.2:
            return said[4:], title
        if want.startswith("and {a:") and r.random() < 0.5:
            title += " and the " + " ".join(w.capitalize() for w in said.split()[2:])
        return f"{who} {said}", title


def plot(rng):
    """(request, title, story)"""
    wants, paragraphs = rng.choice(PLOTS)
    tale = Tale(rng)
    want = rng.choice(wants)
    if re.match(r"who quarrel\b", want):
        want = "and a friend " + want
    asked, title = tale.request(want)
    tale.met = "{x}" in want
    story = "\n\n".join(tale.fill(one_way(p, rng)) for p in paragraphs)
    return rng.choice(REQUESTS + MORE_REQUESTS + SHORT_REQUESTS).format(asked), title, story
