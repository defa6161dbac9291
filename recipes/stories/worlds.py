"""Small passages that are put together from facts, so that questions, answers and the gist are known.

A passage has one hero and two to five scenes. A scene is a function of a Hero: it returns what the passage says,
[(question, answer)], and what the hero did as a verb phrase for the summary, or None.
"""
from facts import NUMBERS, DAYS, MONTHS, a, capital

GIRLS = """Anna Ella Lucy Nora Rosa Maya Ivy Zoe Emma Clara Sara Jane Molly Grace Hannah Alice Daisy Eva Julia Lena
    Mina Olga Paula Ruth Tina Vera Wendy Amy Carla Dora Fiona Greta Helen Ida Kate Laura Nina Sophie Tara Maria""".split()
BOYS = """Adam Ben Carl David Eric Frank George Harry Ian Jack Karl Leo Mark Nick Oliver Peter Ralph Sam Tom Victor
    Will Alex Bob Colin Daniel Emil Felix Gus Henry Jonas Kevin Luke Martin Noah Otto Paul Robin Simon Theo Walter""".split()
BEASTS = """fox rabbit bear mouse owl frog squirrel hedgehog turtle duck cat dog goat penguin raccoon beaver badger otter
    crow donkey monkey pig horse wolf deer""".split()
BEAST_NAMES = """Bruno Pip Hazel Olly Finn Daisy Max Coco Rusty Tilly Milo Luna Bella Rex Toby Misty Ziggy Poppy Biscuit
    Pepper Shadow Maple Buster Nutty Willow Smoky Ginger Patch Fluffy Dusty""".split()
TRADES = """baker farmer fisherman gardener teacher painter doctor tailor carpenter librarian postman shepherd miller
    clockmaker sailor cook shoemaker singer""".split()
KIND_WORDS = "little young old kind clever shy brave curious lonely cheerful quiet lazy busy proud gentle".split()
HOUSES = """in a small village|in a tall house|by the sea|near a dark forest|on a farm|in the city|in a little cottage|
    on a high hill|by a wide river|in a blue house|on an island|at the edge of town|under an old oak|near the station|
    above a bakery|in a valley""".replace("\n", "").replace("    ", "").split("|")
COLOURS = "red blue green yellow black white brown purple pink orange gray".split()
THINGS = """kite ball bicycle lamp scarf box book boat drum bag cup hat umbrella basket blanket bell coat guitar watch
    ring doll key balloon chair bottle wagon pencil necklace mirror""".split()
PETS = "dog cat rabbit parrot hamster turtle goldfish pony mouse duck goat lamb".split()
SPOTS = """in the park|under the bed|in the garden|on the beach|behind the shed|in the attic|near the bridge|on the bus|
    by the lake|in the kitchen|under a bench|in the woods|at the market|in the barn|beside the road|in an old tree|
    at school|on the roof|in the cellar""".replace("\n", "").replace("    ", "").split("|")
PLACES = """the zoo|the market|the museum|the beach|the library|the mountains|the circus|the castle|the lake|the harbor|
    the forest|the theater|the station|the park|the bakery|the city|the farm|the hospital""".replace("\n", "").replace("    ", "").split("|")
FOODS = """soup|bread and cheese|pancakes|an apple|rice|a sandwich|fish|noodles|an omelette|porridge|potatoes|salad|pizza|
    cherry pie|honey cake|carrots|beans|a pear|toast""".replace("\n", "").replace("    ", "").split("|")
DRINKS = "milk|tea|water|orange juice|cocoa|lemonade|apple juice|coffee".split("|")
RIDES = "by train|by bus|by bicycle|by boat|on foot|by car|on a horse|by sled".split("|")
WEATHER = [("rainy", "read a book"), ("snowy", "built a snowman"), ("sunny", "went for a swim"), ("windy", "flew a kite"),
           ("foggy", "stayed at home"), ("stormy", "played cards"), ("hot", "sat under a tree"), ("cold", "lit a fire"),
           ("cloudy", "baked a cake"), ("icy", "went skating")]
REASONS = {"sad": ("the boat was broken", "nobody came to the party", "the cat was ill", "it was time to leave", "the flowers had died"),
           "happy": ("the sun was out", "a letter had come", "school was over", "the cake was ready", "the lost ring was back"),
           "tired": ("the way was long", "the work was hard", "there was no time to sleep", "the night was short"),
           "angry": ("somebody broke the window", "the dog ate the cake", "the bus was late", "the door was locked"),
           "afraid": ("there was thunder", "the room was dark", "a wolf howled", "the bridge shook"),
           "proud": ("the image won a prize", "the tower was finished", "the song was a success", "the race was won")}
TASKS = ["carry the bags", "find the way home", "mend the fence", "pick the apples", "wash the windows", "paint the door",
         "feed the hens", "water the plants", "clean the boat", "look for the cat", "bake the bread", "move the piano",
         "dig a hole", "chop the wood", "build a nest", "gather nuts"]
LOVES = ["sing", "dance", "swim", "paint", "read", "climb trees", "cook", "sleep", "count the stars", "run", "draw maps",
         "collect stones", "play chess", "plant flowers", "tell jokes", "fish", "ride a bicycle", "look at clouds"]
FEARS = ["the dark", "thunder", "spiders", "deep water", "big dogs", "heights", "ghosts", "the wind", "mice", "loud noises"]
HOURS = "five six seven eight nine ten".split()


class Hero:
    def __init__(self, rng):
        self.rng = rng
        draw = rng.random()
        girl = rng.random() < 0.5
        people = GIRLS if girl else BOYS
        self.adjective = rng.choice(KIND_WORDS)
        if draw < 0.4:
            self.kind, self.name = rng.choice(("girl", "woman") if girl else ("boy", "man")), rng.choice(people)
        elif draw < 0.65:
            self.kind, self.name = rng.choice(TRADES), rng.choice(people)
        else:
            self.kind, self.name = rng.choice(BEASTS), rng.choice(BEAST_NAMES)
        self.he, self.his, self.him = ("she", "her", "her") if girl else ("he", "his", "him")
        self.taken = {self.name}
        self.last = ""

    def other(self):
        name = self.rng.choice([n for n in GIRLS + BOYS if n not in self.taken])
        self.taken.add(name)
        return name

    def one(self, words):
        word = self.rng.choice([w for w in words if w not in self.taken] or words)
        self.taken.add(word)
        return word

    def who(self):
        """The hero as the subject of a sentence: by name, by a pronoun, by kind."""
        draw = self.rng.random()
        return capital(self.he) if draw < 0.35 else f"The {self.kind}" if draw < 0.45 else \
            f"The {self.adjective} {self.kind} {self.name}" if draw < 0.5 else self.name

    def coloured(self):
        """(a colour with or without what stands before it, the colour)"""
        colour = self.one(COLOURS)
        return (self.rng.choice(("small", "big", "old", "new", "little", "beautiful", "long", "tiny")) + " " if self.rng.random() < 0.35 else "") + colour, colour


def intro(h):
    home, (it, adjective) = h.one(HOUSES), (h.kind, h.adjective)
    named = h.rng.choice(("named", "called"))
    says = h.rng.choice((f"There was once {a(adjective)} {it} {named} {h.name}, who lived {home}.",
                         f"{h.name} is {a(adjective)} {it}. {capital(h.he)} lives {home}.",
                         f"{h.name} was {a(adjective)} {it} who lived {home}.",
                         f"{capital(a(adjective))} {it} {named} {h.name} lived {home}.",
                         f"{capital(home)} lived {a(adjective)} {it} {named} {h.name}."))
    asks = [(f"Where does {h.name} live?", home), (f"Where did {h.name} live?", home), (f"Who lives {home}?", h.name),
            (f"What is the {it}'s name?", h.name), (f"What is the {it} called?", h.name), (f"Who is {h.name}?", f"{a(adjective)} {it}")]
    if it in BEASTS:
        asks.append((f"What kind of animal is {h.name}?", a(it)))
    return says, asks, None


def pet(h):
    (look, colour), beast, name = h.coloured(), h.one([p for p in PETS if p != h.kind]), h.one(BEAST_NAMES)
    says = h.rng.choice((f"{h.who()} had {a(look)} {beast} called {name}.", f"{h.who()} had {a(look)} {beast}. Its name was {name}.",
                         f"{h.who()} has {a(look)} {beast} named {name}. Every day they go for a walk {h.rng.choice(SPOTS)}.",
                         f"{capital(h.his)} {beast} {name} was {colour}."))
    return says, [(f"What was the name of the {beast}?", name), (f"What is the {beast} called?", name), (f"What colour is the {beast}?", colour),
                  (f"What color was {name}?", colour), (f"What kind of animal was {name}?", a(beast)), (f"What pet did {h.name} have?", f"a {beast}")], None


def find(h):
    day, thing, (look, colour), spot = h.one(DAYS), h.one(THINGS), h.coloured(), h.one(SPOTS)
    says = h.rng.choice((f"On {day} {h.name} found {a(look)} {thing} {spot}.", f"On {day}, {h.he} found {a(look)} {thing} {spot}.",
                         f"On {day} {h.his} way led {h.him} far. {h.who()} found {a(look)} {thing} {spot}.",
                         f"One {day}, {h.name} saw {a(look)} {thing} {spot} and took it home."))
    verb = "find" if "found" in says else "see"
    return says, [(f"What did {h.name} {verb}?", f"{a(look)} {thing}"), (f"Where was the {thing}?", spot), (f"What colour was the {thing}?", colour),
                  (f"When did {h.name} {verb} the {thing}?", f"on {day}"), (f"Who {'found' if verb == 'find' else 'saw'} the {thing}?", h.name)], f"found {a(look)} {thing} {spot}"


def lose(h):
    thing, colour, spot, friend = h.one(THINGS), h.one(COLOURS), h.one(SPOTS), h.other()
    says = f"{h.who()} lost {h.his} {colour} {thing}. " + h.rng.choice((f"{friend} found it {spot}.", f"{capital(h.his)} friend {friend} looked for it and found it {spot}.",
            f"At last {friend} saw it {spot} and brought it back."))
    return says, [(f"What did {h.name} lose?", f"{h.his} {colour} {thing}"), (f"Who found the {thing}?" if "found" in says else f"Who saw the {thing}?", friend), (f"Where was the {thing}?", spot),
                  (f"What colour was the {thing}?", colour)], f"lost {h.his} {colour} {thing} {spot}"


def gift(h):
    thing, colour, friend, when = h.one(THINGS), h.one(COLOURS), h.other(), h.rng.choice(("for Christmas", "on Sunday", "for the birthday", "at the party"))
    when = when.replace("the birthday", h.his + " birthday")
    relation = h.rng.choice(("", f"{h.his} friend ", f"{h.his} aunt " if friend in GIRLS else f"{h.his} uncle "))
    says = f"{capital(when)}, {relation}{friend} gave {h.name} {a(colour)} {thing}."
    return says, [(f"Who gave {h.name} the {thing}?", friend), (f"What did {friend} give {h.name}?", f"{a(colour)} {thing}"), (f"What colour is the {thing}?", colour),
                  (f"What did {h.name} get?", f"{a(colour)} {thing}"), (f"Who got the {thing}?", h.name)], f"got {a(colour)} {thing} from {friend}"


def meal(h):
    food, drink, time = h.one(FOODS), h.one(DRINKS), h.rng.choice(("breakfast", "lunch", "dinner", "supper"))
    says = h.rng.choice((f"For {time} {h.he} ate {food} and drank {drink}.", f"For {time}, {h.name} had {food}, with {drink} to drink."))
    return says, [(f"What did {h.name} eat?", food), (f"What did {h.name} drink?", drink), (f"What did {h.name} have for {time}?", food), (f"When did {h.name} eat {food}?", f"for {time}")], f"had {food} for {time}"


def weather(h):
    kind, did = h.rng.choice(WEATHER)
    says = h.rng.choice((f"It was a {kind} day, so {h.name} {did}.", f"The day was {kind}, and {h.name} {did}.", f"Because it was {kind}, {h.he} {did}."))
    if kind == "icy":
        says = says.replace("a icy", "an icy")
    return says, [("What was the weather like?", kind), (f"What did {h.name} do?", did), ("How was the day?" if "day" in says else "How was the weather?", kind)], f"{did} on {a(kind)} day"


def count(h):
    n, thing, colour = h.rng.randrange(2, 13), h.one(THINGS), h.one(COLOURS)
    if thing in ("watch",):
        thing = "cup"
    things = {"box": "boxes"}.get(thing, thing + "s")
    says = f"{h.who()} had {NUMBERS[n]} {h.rng.choice((colour + ' ', ''))}{things}" + h.rng.choice((".", " in the house.", " on a shelf."))
    return says, [(f"How many {things} did {h.name} have?", NUMBERS[n]), (f"How many {things} are there?", NUMBERS[n]), (f"Who had {NUMBERS[n]} {things}?", h.name)], None


def trip(h):
    place, ride, friend, day = h.one(PLACES), h.rng.choice(RIDES), h.other(), h.rng.choice(DAYS + ["Monday morning"] + [m for m in MONTHS])
    when = ("in " if day in MONTHS else "on ") + day
    says = h.rng.choice((f"{capital(when)} {h.name} went to {place} {ride}. {friend} came along.", f"{capital(when)}, {h.name} and {friend} went {ride} to {place}.",
                         f"{h.who()} went to {place} with {friend} {when}. They went {ride}."))
    return says, [(f"Where did {h.name} go?", f"to {place}"), (f"Who went with {h.name}?", friend), (f"How did {h.name} get there?", ride), (f"When did {h.name} go to {place}?", when),
                  (f"How did they get to {place}?", ride)], f"went to {place} with {friend}"


def feeling(h):
    how = h.rng.choice(sorted(REASONS))
    why = h.rng.choice(REASONS[how])
    says = h.rng.choice((f"{h.who()} was {how} because {why}.", f"{h.name} felt {how}, because {why}."))
    return says, [(f"Why was {h.name} {how}?", f"because {why}"), (f"How did {h.name} feel?", how), (f"Who was {how}?", h.name)], f"was {how} because {why}"


def help_somebody(h):
    friend, task = h.other(), h.rng.choice(TASKS)
    reward, colour = h.one(THINGS), h.one(COLOURS)
    says = f"{h.who()} helped {friend} {task}. " + h.rng.choice((f"{friend} said thank you and gave {h.him} {a(colour)} {reward}.", f"As thanks {h.he} got {a(colour)} {reward}.", f"{friend} was very grateful."))
    asks = [(f"Who helped {friend}?", h.name), (f"Whom did {h.name} help?", friend), (f"What did {h.name} help {friend} do?", task)]
    if reward in says:
        asks.append((f"What did {h.name} get?", f"{a(colour)} {reward}"))
    return says, asks, f"helped {friend} {task}"


def like(h):
    love, fear = h.rng.choice(LOVES), h.rng.choice(FEARS)
    both = h.rng.random() < 0.5
    says = f"{h.who()} loved to {love}" + (f", but was afraid of {fear}." if both else ".")
    return says, [(f"What did {h.name} love to do?", love), (f"What did {h.name} like to do?", love)] + ([(f"What was {h.name} afraid of?", fear)] if both else []), None


def race(h):
    friend = h.other()
    winner, loser = h.rng.sample((h.name, friend), 2)
    says = h.rng.choice((f"{h.name} and {friend} ran a race, and {winner} won.", f"{h.name} raced against {friend}. {loser} was fast, but {winner} was faster and won."))
    return says, [("Who won the race?", winner), ("Who won?", winner), ("Who lost the race?", loser), (f"Whom did {h.name} race against?", friend)], \
        f"{'won' if winner == h.name else 'lost'} a race against {friend}"


def morning(h):
    hour, what = h.rng.choice(HOURS), h.rng.choice(("feeds the hens", "opens the shop", "waters the garden", "rings the bell", "walks to the river", "sweeps the yard", "reads the paper"))
    says = f"Every morning at {hour}, {h.he} {what}."
    return says, [(f"What does {h.name} do every morning?", what), (f"Who {what}?", h.name)], None


def build(h):
    what, stuff, days = h.one(["a treehouse", "a boat", "a bridge", "a tower", "a wall", "a nest", "a hut", "a sled", "a raft", "a table"]), h.one(["wood", "stone", "branches", "snow", "straw", "boxes", "bricks", "clay"]), h.rng.randrange(2, 11)
    says = f"{h.who()} built {what} of {stuff}. It took {NUMBERS[days]} days."
    return says, [(f"What did {h.name} build?", what), (f"What was {what.replace('a ', 'the ', 1)} made of?", stuff), ("How long did it take?", f"{NUMBERS[days]} days"), (f"Who built {what.replace('a ', 'the ', 1)}?", h.name)], f"built {what} of {stuff}"


VERBS = {"painted": ("paint", "an image of a dragon|the door|a green dragon|a portrait|the fence|a blue whale"),
         "baked": ("bake", "a cake|bread|an apple pie|twenty cookies|a pizza"), "wrote": ("write", "a letter|a song|a long story|a postcard"),
         "bought": ("buy", "a ticket|new shoes|some flowers|a loaf of bread|two lemons|a newspaper"),
         "broke": ("break", "a plate|the window|a vase|the chair"), "stole": ("steal", "a plum|the cheese|a fish|some cherries|a pie"),
         "ate": ("eat", "a plum|some berries|an apple|a carrot|a cookie|the cheese"), "drew": ("draw", "a map|a house|a funny face|a horse"),
         "made": ("make", "a paper boat|a crown|a wooden horse|some tea|a snow castle"), "sold": ("sell", "apples|a cow|old books|fresh fish|a carpet"),
         "caught": ("catch", "a big fish|a butterfly|the ball|a cold|a thief"), "planted": ("plant", "a tree|a sunflower|some beans|roses"),
         "heard": ("hear", "a soft meow|a strange noise|a song|a loud bang"), "carried": ("carry", "a heavy box|a ladder|the basket|a sack of flour")}


def deed(h):
    verb = h.rng.choice(sorted(VERBS))
    base, things = VERBS[verb]
    thing, spot = h.rng.choice(things.split("|")), h.one(SPOTS)
    says = h.rng.choice((f"{h.who()} {verb} {thing}.", f"{h.who()} went out and {verb} {thing}.", f"Then {h.he} {verb} {thing}.",
                         f"One evening {h.name} {verb} {thing} {spot}.", f"{h.who()} was alone all day and {verb} {thing}."))
    return says, [(f"What did {h.name} {base}?", thing), (f"Who {verb} {thing}?", h.name)], f"{verb} {thing}"


def family(h):
    girl = h.rng.random() < 0.5
    other = h.rng.choice([n for n in (GIRLS if girl else BOYS) if n not in h.taken])
    h.taken.add(other)
    relation = h.rng.choice(("sister", "mother", "aunt", "cousin", "friend") if girl else ("brother", "father", "uncle", "cousin", "friend"))
    place, ride, n, beasts = h.one(PLACES), h.rng.choice(RIDES), h.rng.randrange(2, 13), h.rng.choice(("monkeys", "birds", "boats", "cows", "tigers", "stars", "horses", "trees", "frogs", "swans"))
    when = "on " + h.rng.choice(DAYS)
    says = h.rng.choice((f"{capital(when)}, {h.name} and {h.his} {relation} {other} went to {place} {ride}. They saw {NUMBERS[n]} {beasts}.",
                         f"{h.who()} went {ride} to {place} with {h.his} {relation} {other}. There they counted {NUMBERS[n]} {beasts}.")) + \
        h.rng.choice(("", f" {other} liked the {beasts} best.", f" {h.name} laughed all the way home."))
    return says, [(f"Who is {h.name}'s {relation}?", other), (f"How many {beasts} did they see?", NUMBERS[n]), (f"How many {beasts} were there?", NUMBERS[n]),
                  (f"Where did they go?", place), (f"How did they get to {place}?", ride), (f"How did they get there?", ride), (f"Who went with {h.name}?", h.his + " " + relation + " " + other)], \
        f"went to {place} with {other}"


def herd(h):
    n, m = h.rng.sample(range(2, 13), 2)
    some, others = h.rng.sample(("sheep", "cows", "goats", "hens", "horses", "pigs", "geese", "ducks"), 2)
    (look, colour), one, name = h.coloured(), h.rng.choice(("goat", "dog", "cat", "donkey", "pony")), h.one(BEAST_NAMES)
    says = h.rng.choice((f"{h.who()} keeps {NUMBERS[n]} {some} and one {look} {one} named {name}.", f"{h.who()} had {NUMBERS[n]} {some}, {NUMBERS[m]} {others} and {a(look)} {one} called {name}."))
    asks = [(f"How many {some} does {h.name} have?", NUMBERS[n]), (f"How many {some} are there?", NUMBERS[n]), (f"What is the name of the {one}?", name), (f"What is the {one} called?", name),
            (f"What colour is the {one}?", colour)]
    return says, asks + ([(f"How many {others} does {h.name} have?", NUMBERS[m])] if NUMBERS[m] + " " + others in says else []), None


SCENES = [pet, find, lose, gift, meal, weather, count, trip, feeling, help_somebody, like, race, morning, build, deed, deed, family, herd]


def world(rng):
    """(passage, [(question, answer)], gist): the gist has one or two things that the hero did."""
    h = Hero(rng)
    said, asks, deeds = [], [], []
    for scene in ([intro] if rng.random() < 0.8 else []) + rng.sample(SCENES, rng.choice((2, 2, 3, 3, 4, 5))):
        says, questions, deed = scene(h)
        said.append(says)
        asks += questions
        deeds += [deed] if deed else []
    if not deeds or not any(h.name in line for line in said[:1]):
        return world(rng)
    said[-1] += rng.choice(("", "", f" {h.name} was very happy.", f" It was a day that {h.name} never forgot.", f" In the evening {h.he} fell asleep at once."))
    once = {}
    for question, answer in asks:
        once.setdefault(question, set()).add(answer)
    known = [(q, capital(next(iter(answers))) + ".") for q, answers in once.items() if len(answers) == 1]
    known += [(q, h.name + ".") for q in rng.sample(("Who is the text about?", "Who is the story about?", "Who is the main character?"), 1)]
    rng.shuffle(known)
    hero = f"{h.name}, {a(h.adjective)} {h.kind}," if h.kind in said[0] and rng.random() < 0.85 else f"{h.name}"
    return rng.choice((" ", " ", "\n\n")).join(said[:1]) + " " + " ".join(said[1:]), known, (hero, deeds)


def summary(hero, deeds, n):
    """In one sentence the first two deeds, in two one more."""
    if n == 1 or len(deeds) < 2:
        return f"{hero} {' and '.join(deeds[:2])}."
    return f"{hero} {deeds[0]}. Then {hero.split(',')[0]} {' and '.join(deeds[1:3])}."
