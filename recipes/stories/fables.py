"""Short stories that are put together, so that what was asked for is in them from beginning to end.

The stories of others are few, and a model that reads them often knows them by heart: it goes on as they do, whatever
it was asked for. A fable is new each time: its hero and what the hero meets are drawn, and every sentence is one of
several ways to say what happens next.
"""
from tales import ANIMALS, OBJECTS, PEOPLE, PLACES, REQUESTS, SHORT_REQUESTS, with_article
from worlds import BEAST_NAMES, BOYS, COLOURS, GIRLS, HOUSES, KIND_WORDS, LOVES, SPOTS
from facts import capital

CHILDREN = ("girl", "boy")
KINDS = [k for k in ANIMALS + PEOPLE if k not in ("prince", "king", "queen", "princess", "waitress", "actor", "thief", "ghost")]
SHE = {"queen", "princess", "witch", "mermaid", "grandmother", "fairy", "waitress", "girl", "cow", "duck", "goose", "chicken"}
TIMES = ["One morning", "One day", "One sunny day", "One evening", "One rainy afternoon", "Early one morning", "One windy day",
         "On a warm summer day", "On a cold winter day", "One quiet night", "On the first day of spring"]
DID = ["was walking through the woods", "was on the way home", "was looking out of the window", "was sitting by the river",
       "was very bored", "was looking for something to do", "woke up very early", "could not sleep", "went for a long walk",
       "was picking berries", "was sweeping the floor", "was watching the clouds"]
ENDS = ["From that day on, {a} and {b} were never apart.", "And {a} never forgot that day.", "{A} fell asleep with a smile.",
        "And so {a} learned that it is good to be kind.", "They all lived happily ever after.", "And everybody in the village spoke of {a} for a long time.",
        "From then on, {a} was never lonely again.", "That night {a} dreamed of {b}."]


def pick(rng, *ways):
    return rng.choice(ways)


class Fable:
    def __init__(self, rng, hero=None, other=None):
        self.rng = rng
        self.kind = hero or rng.choice(KINDS if rng.random() < 0.75 else CHILDREN)
        she = self.kind in SHE or self.kind != "boy" and rng.random() < 0.45
        people = self.kind not in ANIMALS
        self.name = rng.choice((GIRLS if she else BOYS) if people else BEAST_NAMES)
        self.he, self.his, self.him = ("she", "her", "her") if she else ("he", "his", "him")
        self.adjective = rng.choice(KIND_WORDS)
        self.what = other or rng.choice(rng.choice((sorted(OBJECTS), sorted(PLACES), ANIMALS, KINDS)))
        if self.what == self.kind:
            self.what = "key"
        self.sort = "thing" if self.what in OBJECTS else "place" if self.what in PLACES else "friend"
        self.friend = rng.choice([n for n in (BEAST_NAMES if self.what in ANIMALS else GIRLS + BOYS) if n != self.name])

    def hero(self):
        """The hero in the middle of a story."""
        return self.rng.choice((self.name, self.name, f"the {self.kind}", f"{self.name} the {self.kind}" if self.kind not in CHILDREN else self.name))

    def begin(self):
        r, home = self.rng, self.rng.choice(HOUSES)
        called = pick(r, "named", "called")
        first = pick(r, f"Once upon a time, there was {with_article(self.adjective)} {self.kind} {called} {self.name}, who lived {home}.",
                     f"Once there was {with_article(self.adjective)} {self.kind} {called} {self.name}. {capital(self.he)} lived {home}.",
                     f"{capital(home)} there lived {with_article(self.adjective)} {self.kind} {called} {self.name}.",
                     f"There once was {with_article(self.kind)} {called} {self.name}, and {self.he} was the most {self.adjective} {self.kind} of all."
                     if self.adjective in ("curious", "lonely", "cheerful", "gentle") else f"Long ago, {with_article(self.adjective)} {self.kind} {called} {self.name} lived {home}.")
        love = r.choice(LOVES)
        return first + " " + pick(r, f"{self.name} loved to {love}.", f"Every day {self.he} liked to {love}.", f"The {self.kind} had one great wish: to have a friend.",
                                  f"Nothing made the {self.kind} happier than to {love}.", f"{self.name} had always wanted an adventure.")

    def thing(self):
        r, t, c, spot = self.rng, self.what, self.rng.choice(COLOURS), self.rng.choice(SPOTS)
        found = pick(r, f"{self.hero()} found {with_article(c)} {t} {spot}.", f"{self.hero()} saw {with_article(c)} {t} {spot}. Nobody was there to whom it could belong.",
                     f"{self.hero()} stumbled over something {spot}. It was {with_article(c)} {t}!")
        said = pick(r, f'"What a beautiful {t}!" said {self.name}.', f'"Whose {t} is this?" asked {self.name}.', f'"I have never seen such {with_article(t)}," {self.he} whispered.')
        who = r.choice([n for n in GIRLS + BOYS if n != self.name])
        self.outcome, plot = pick(r,
            (f"showed everybody the way home in a storm", f"But the {t} was not like others. Whenever the {self.kind} touched it, it began to shine. {self.name} took the {t} home and put it beside the bed.\n\nIn the night there was a storm, and all the lights went out. {self.name} held up the {t}, and it shone so brightly that everybody found the way home."),
            (f"gave it back to {who}", f"{self.name} wanted to keep the {t}. But then {self.he} heard somebody cry. It was a child named {who}. \"I have lost my {t},\" said {who}.\n\n{self.name} thought about it. Then the {self.kind} gave the {t} back. {who} stopped crying and laughed. \"Thank you! Shall we play with it together?\""),
            (f"got it out of the river with the help of {who}", f"{self.name} took the {t} along, but on the bridge the wind blew it into the river. The {self.kind} ran along the bank and called for help.\n\nAn old man named {who} came with a long stick. Together they pulled the {t} out of the water. It was wet, but it was not broken."),
            (f"mended it", f"The {t} was broken. {self.name} worked on it all day and all night. First the {self.kind} washed it, then {self.he} mended it with a piece of string.\n\nWhen {who} saw the {t}, {who} could not believe it. \"It is as good as new!\" {self.name} was very proud."),
            (f"took it to a wise woman in the tower", f"Inside the {t} there was a little note. \"Bring me to the old tower,\" it said. So {self.name} carried the {t} over the hills, through the rain and across the river.\n\nIn the tower lived a wise woman. \"You have brought my {t} back,\" she said, and she gave the {self.kind} a bag of gold."),
            (f"shared it with the others", f"All the others wanted to have the {t}, too. They pulled at it and shouted, until it fell to the ground. {self.name} was sad.\n\n\"We can share the {t},\" said the {self.kind}. \"Each of us may have it for one day.\" So they did, and nobody was angry any more."))
        return f"{r.choice(TIMES)}, when {self.he} {r.choice(DID)}, {found} {said}", plot, f"the {t}"

    def place(self):
        r, t = self.rng, self.what
        who = r.choice([n for n in GIRLS + BOYS if n != self.name])
        said = pick(r, f"{self.hero()} saw {with_article(t)} that {self.he} had never seen before.", f"{self.hero()} came to {with_article(t)}. It looked old and very quiet.",
                    f"{who} told {self.name} about {with_article(t)} where nobody dared to go.")
        self.outcome, plot = pick(r,
            (f"listened to the stories of an old woman", f"{self.name} was a little afraid, but {self.he} went to the {t}. There was a light! In the light sat an old woman named {who}. \"I have lived at the {t} for a hundred years,\" she said, \"and nobody has ever come to see me.\"\n\nThe {self.kind} sat down with her and listened to her stories. From then on {self.he} came to the {t} every week."),
            (f"made it as good as new", f"The {t} was full of dust, and everything was broken. \"This could be the finest {t} in the country,\" thought {self.name}.\n\nSo the {self.kind} began to work. {who} brought paint, and others brought wood and nails. After a week the {t} was as good as new, and they had a big party."),
            (f"set a small bird free", f"{self.name} looked around. Then {self.he} heard a sound. A small bird was caught and could not get out of the {t}. \"Do not be afraid,\" said the {self.kind}.\n\nVery carefully {self.he} set the bird free. The bird flew three times around the {t} and sang the most beautiful song."),
            (f"found an image of two friends", f"At the {t} {self.he} met {who}, who was looking for a treasure. \"Help me, and you get the half of it,\" said {who}. They searched every corner of the {t}.\n\nAt last the {self.kind} found a small box. There was no gold in it, but an image of two friends. \"That is better than gold,\" said {self.name}."),
            (f"found the way home in the moonlight", f"But on the way back it became dark, and {self.name} got lost. The {self.kind} sat down and cried. Then {self.he} saw the {t} again, far away in the moonlight.\n\n\"If I walk towards the {t}, I will find the road,\" thought {self.name}. And so it was. {who} was waiting there with a lamp."))
        return f"{r.choice(TIMES)}, when {self.he} {r.choice(DID)}, {said}", plot, f"the {t}"

    def other(self):
        r, t, m = self.rng, self.what, self.friend
        met = pick(r, f"{self.hero()} met {with_article(t)} named {m}.", f"{with_article(t)} came along. \"I am {m},\" said the {t}.", f"{self.hero()} heard a voice. It was {with_article(t)} called {m}.")
        said = pick(r, f'"Why are you so sad?" asked the {self.kind}.', f'"Will you be my friend?" asked the {self.kind}.', f'"Where are you going?" {self.name} asked.', f'"Hello," said {self.name}.')
        lost = r.choice(sorted(OBJECTS))
        self.outcome, plot = pick(r,
            (f"helped to find the lost {lost}", f"\"I have lost my {lost},\" said the {t}. \"I cannot find it anywhere.\" So the {self.kind} and the {t} looked for it together. They looked under every stone and behind every tree.\n\nAt last {self.name} saw the {lost} in a bush. {m} was so happy that {m} danced around the {self.kind}."),
            (f"was pulled out of a hole by {m}", f"The {t} was hungry and tired. {self.name} gave {m} some bread and a warm place to sleep.\n\nSome days later the {self.kind} fell into a deep hole. {self.name} called and called. Who came? It was {m}! The {t} pulled {self.him} out."),
            (f"won a race", f"The {t} laughed. \"You are only {with_article(self.kind)}. You cannot even run as fast as I can.\" So they ran a race. The {t} was fast, but stopped for a little sleep under a tree.\n\n{self.name} ran on and on and won the race. \"I am sorry that I laughed,\" said {m}. \"You are a good {self.kind}.\""),
            (f"went to the sea with {m}", f"\"I want to see the sea,\" said the {t}, \"but I am afraid to go alone.\" \"Then let us go together,\" said the {self.kind}. They walked for three days, and {m} sang all the way.\n\nWhen they saw the blue water, the {t} was silent. \"It is even more beautiful with a friend,\" said {m}."),
            (f"became friends with {m} in a storm", f"They did not like each other at first. The {self.kind} thought that the {t} was rude, and the {t} thought that the {self.kind} was proud. Then a storm came, and both had to hide in the same cave.\n\nIn the dark {m} told a funny story, and {self.name} laughed. When the sun came back, the {self.kind} and the {t} were friends."),
            (f"helped to build a house", f"The {t} wanted to build a house but had no help. So {self.name} carried the wood, and {m} hit the nails. It was hard work.\n\nIn the evening the house was finished. \"This is your home, too,\" said the {t} to the {self.kind}. They ate soup and looked at the stars."))
        return f"{r.choice(TIMES)}, when {self.he} {r.choice(DID)}, {met[0].lower() + met[1:] if met.startswith(('A ', 'An ', 'The ', 'the ')) else met} {said}", plot, m

    def tell(self):
        opened, plot, other = {"thing": self.thing, "place": self.place, "friend": self.other}[self.sort]()
        end = self.rng.choice(ENDS).format(a=self.rng.choice((self.name, f"the {self.kind}")), b=other, A=self.name)
        return f"{self.begin()}\n\n{opened}\n\n{plot}\n\n{end}"

    def gist(self, n):
        """The story in one sentence or two."""
        hero = f"{self.name}, {with_article(self.adjective)} {self.kind},"
        first = {"thing": f"found {with_article(self.what)}", "place": f"came to {with_article(self.what)}",
                 "friend": f"met {with_article(self.what)} named {self.friend}"}[self.sort]
        return f"{hero} {first} and {self.outcome}." if n == 1 else f"{hero} {first}. In the end, {self.he} {self.outcome}."

    def request(self):
        """(how the story was asked for, its title)"""
        r, name = self.rng, ""
        about = with_article(self.kind)
        if r.random() < 0.3:
            name = f" named {self.name}"
        elif r.random() < 0.3:
            about = with_article(f"{self.adjective} {self.kind}")
        about += name
        both = r.random() < 0.6
        second = with_article(self.what)
        if both:
            about = f"{about} and {second}" if name or r.random() < 0.75 else f"{second} and {about}"
        ask = r.choice(REQUESTS + 2 * SHORT_REQUESTS).format(about)
        title = (self.name if name else f"The {self.kind.capitalize()}") + (f" and the {self.what.capitalize()}" if both else "")
        return ask, title


def fable(rng):
    """(request, title, story, its gist as a function of the number of sentences)"""
    one = Fable(rng)
    story = one.tell()
    return (*one.request(), story, one.gist)
