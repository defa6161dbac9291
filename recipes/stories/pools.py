"""Words that stories on request (yarns.py) and passages (events.py) are about: names of many languages, kinds of
heroes, things, places, and what somebody can want to do.

Every class is open: beside the lists there are nouns and names found in the texts (`mined`), and names that nobody
has. So what is asked for, or answered, has to be copied.
"""
import collections
import re

from scenes import LISTS, MORE_BOYS, MORE_GIRLS, OPEN, made_up_name
from tales import ANIMALS, NOT_NAMES, PEOPLE
from worlds import BOYS, GIRLS

SHE_NAMES = GIRLS + MORE_GIRLS + """Abena Adaeze Aditi Akiko Alma Ana Anjali Annika Asha Ayesha Aylin Bianca Birgit Camila Catarina
    Celia Chiara Dalia Dilnoza Elif Elsa Emily Erin Eszter Farah Fleur Gabriela Gemma Giulia Hadiza Hilda Imani Ioana Isabel Jana Jasmine
    Josefina Kamala Karin Katya Keiko Kirsten Lakshmi Lara Layla Lin Lucia Lulu Madina Maeve Malika Margit Marisol Mary Meera Mercy Mirella Nadine
    Naima Natalia Neha Nia Oksana Olivia Paloma Petra Polly Rania Rebecca Renata Rita Rosalind Roxana Sakura Salma Saskia Selma Shirin
    Signe Sigrid Simone Siobhan Sunita Susan Svetlana Tamar Teresa Thandi Tove Uma Ursula Valentina Vida Wanda Xenia Ximena Yasmin Yara
    Yoko Zainab Zelda Zofia""".split()
HE_NAMES = BOYS + MORE_BOYS + """Abdul Aidan Akira Alan Alejandro Amir Anders Andrei Arif Armando Babak Bartek Bilal Billy Björn Bogdan Brendan Carlos
    Charlie Cyrus Dante Darius Davide Dmitri Eduardo Ekon Elias Enrique Erik Esteban Ethan Farid Fergus Fernando Filip Francesco Gabriel
    Giorgio Goran Gregor Gustav Habib Haruto Hiro Idris Igor Imran Isaac Ismail Jabari Jamal Jan Javier Jin Joao Joaquin Johan Jorge Jude
    Julian Kareem Kazimir Khalid Kiran Kwesi Lamar Laszlo Leon Lorenzo Lukas Malik Manuel Marek Marlon Mehmet Miles Mohan Murat Nabil
    Nikhil Nils Obi Oleg Oskar Patrick Pavel Pedro Philip Quentin Rafael Rahul Rashid Ricardo Roberto Rohan Salim Samuel Sanjay Santiago Sean Sergei
    Sipho Stefan Takeshi Tariku Thabo Tim Tobias Toma Umar Vikram Viktor Vincent Wei Xavier Yannis Yusuf Zane""".split()
MORE_ANIMALS = """badger beaver beetle caterpillar chick cricket dragonfly duckling eel firefly flamingo gecko gorilla hen heron hippo jaguar
    jellyfish ladybug lamb leopard llama magpie meerkat mole moth ostrich oyster partridge pelican polar-bear rhinoceros robin rooster seagull
    skunk starfish stork turkey walrus worm yak""".split()
MORE_PEOPLE = """barber beekeeper blacksmith bus-driver butcher carpenter clockmaker cook dentist diver drummer engineer florist gardener guard
    hairdresser hunter judge juggler lifeguard locksmith lumberjack mason mayor mechanic merchant miller miner monk nurse painter plumber poet postman
    potter shepherd shoemaker snowman sweeper tailor taxi-driver tinker train-driver trumpeter vet violinist watchmaker weaver zookeeper""".split()
FAMILY = "grandmother grandfather grandma grandpa aunt uncle mother father sister brother cousin neighbor".split()
CHILD = "girl boy".split()
THINGS = sorted({w for k in ("thing", "cloth", "tool", "build", "instrument") for w in LISTS[k]} - {"tape", "string", "some glue", "nails", "pliers"} | set(OPEN["thing"]) | set("""
    apple-tree armchair bathtub bus caravan carrot cherry cloud coin cookie crayon dragon-egg drawing egg feather fishing-rod flower football fridge
    gift ice-cream igloo island jam kettle ladder leaf lollipop lunchbox magic-wand magnet marble medal mitten moonbeam music-box nest net nut
    pancake paper-boat parcel pearl pebble penny phone photo pie pillow pineapple plum present puddle pumpkin puzzle raft recipe ribbon riddle rocking-horse rose
    rug sandcastle sausage scooter seed shadow sled slipper snowball snowflake sofa song soup spoon star steam-engine stone stool storybook
    strawberry submarine sunflower swing taxi tea-cup teddy-bear toothbrush tower tractor trombone truck tulip tunnel van wish wheelbarrow windmill
    wallet rainbow bone acorn pinecone poem secret song diary snow-globe hot-air-balloon kite-string magic-carpet""".replace("-", " - ").replace(" - ", "-").split()))
THINGS = [t.replace("-", " ").removeprefix("a ").removeprefix("an ") for t in THINGS]
SCENERY = """airport attic bakery barn bathroom beach bookshop bridge bus-stop cabin campsite castle cave cellar cemetery church cinema circus city classroom
    cliff cottage desert dock factory fair farm field fire-station forest fountain garage garden greenhouse harbor haunted-house hill hospital hotel ice-rink
    island jungle kitchen lagoon lake library lighthouse market meadow mill mine mountain museum orchard palace park playground pond port post-office prison restaurant
    river school shipyard shop snow-covered-village space-station stable station street swamp swimming-pool temple tent theater toy-shop train-station treehouse
    tunnel valley village vineyard volcano waterfall well workshop zoo""".split()
SCENERY = [w.replace("-", " ") for w in SCENERY]
AT = {w: "in" for w in SCENERY} | {w: "at" for w in "airport bus-stop beach bridge campsite church circus fair fountain harbor dock lake market mill pond port river school station swimming-pool waterfall well zoo fire-station train-station".replace("-", " ").split()} | {
    w: "on" for w in "cliff farm hill island mountain playground street field".split()}
AT |= {"bus stop": "at", "swimming pool": "at", "fire station": "at", "train station": "at", "volcano": "near", "cemetery": "in"}
# What somebody wants to do: "bake the cake", with what it is about.
WISHES = """bake {a:food1}|build {a:build}|paint {a:thing}|find {a:thing}|mend {a:thing}|win a race|win {a:prize}|see the sea|see {a:wild}|learn to {can}|
    catch {a:fish}|climb {a:high}|cross {a:wide}|grow {a:plant}|plant {a:plant}|make {a:food1}|cook {food}|draw {a:wild}|fly {a:flyer}|sail {a:boat}|ride {a:ridden}|
    open {a:shop}|write {a:letter}|sing in the choir|play the {instrument}|dance at the ball|fly to the moon|touch the stars|touch {a:wild}|
    visit {his} grandmother|find a friend|find the way home|get home|make friends with {a:wild}|cheer up {his} friend|help {a:wild}|save {a:wild}|
    save the {place}|clean the {place}|find a treasure|find a new home|buy {a:thing}|sell {a:thing}|hide {a:thing}|bring back {a:thing}|
    carry {a:thing} home|stay awake all night|count the stars|see a rainbow|catch the moon|stop the rain|build a snowman|ring the bell|
    wake up the sun|tame {a:wild}|tell a joke|learn the alphabet|learn a magic trick|become {a:job}|become a {adj} {kind}|wear {a:cloth}|
    knit {a:cloth}|sew {a:cloth}|wash {a:cloth}|repair {a:machine}|drive {a:machine}|invent {a:machine}|collect {stuffs}|keep a secret|
    give a party|have a birthday party|go to school|go swimming|go fishing|play football|join the band|explore {a:place}|guard {a:thing}""".replace("\n", "").replace("    ", "").split("|")
SLOTS = {
    "food1": LISTS["food1"] + "apple pie|birthday cake|bowl of soup|omelette|sandwich|tower of waffles".split("|"), "food": LISTS["food"] + OPEN["food"],
    "build": LISTS["build"] + ["castle", "house", "snow castle", "sandcastle", "robot", "rocket", "nest", "dam", "den"],
    "prize": ["prize", "medal", "cup", "contest", "game"], "can": LISTS["can"],
    "fish": ["fish", "butterfly", "ball", "thief", "frog", "big fish", "firefly"], "high": ["mountain", "tree", "tower", "ladder", "hill", "wall"],
    "wide": ["river", "desert", "bridge", "lake", "road", "swamp"], "plant": ["tree", "rose", "sunflower", "pumpkin", "carrot", "flower", "bean"],
    "flyer": ["kite", "plane", "balloon", "rocket"], "boat": ["boat", "ship", "raft", "submarine"], "ridden": ["bicycle", "horse", "pony", "camel", "scooter", "elephant"],
    "shop": ["shop", "bakery", "window", "locked door", "treasure chest", "restaurant", "library"], "letter": ["letter", "book", "song", "poem", "story"],
    "machine": ["car", "clock", "tractor", "train", "machine", "radio", "engine", "bus", "truck", "robot"], "instrument": LISTS["instrument"],
    "job": LISTS["job"], "adj": LISTS["adj"], "cloth": LISTS["cloth"], "stuffs": LISTS["stuffs"], "wild": LISTS["wild"],
}
LIKED = sorted(set(LISTS["food"] + OPEN["food"] + LISTS["fruits"] + LISTS["flowers"] + LISTS["birds"] + LISTS["stuffs"] +
                   """books music snow trains stars cars dinosaurs puzzles rain clouds stories balloons kites bubbles ships drums maps songs jokes riddles
    colors puddles cats dogs horses frogs trees robots planets shells trucks dolls hats socks bells magic winter summer candy chocolate jam""".split()))
FEARED = LISTS["fear"] + """the night|water|the sea|fire|cats|dogs|mice|storms|flying|the forest|the doctor|school|winter|monsters|the moon|shadows|
    being alone|the cold|crocodiles|the cellar|swimming|the wolf|rain|loud music|the attic|elephants|birds|balloons|trains""".replace("\n", "").replace("    ", "").split("|")
ADJECTIVES = """little young old kind clever shy brave curious lonely cheerful quiet lazy busy proud gentle tiny big small hungry sleepy grumpy friendly
    clumsy funny poor rich greedy fast slow sad happy tired lost forgetful naughty polite magic talking silly wise strong nervous jealous angry stubborn
    purple blue green red golden white""".split()


def article(noun):
    return ("an " if noun[0].lower() in "aeiou" and not noun.startswith(("uni", "one", "eu", "use")) else "a ") + noun


def mined(texts):
    """(names, nouns) of the texts: what is written with a capital within sentences and never small; and what often stands
    between "a" or "the" and the end of a clause."""
    small, capitals, nouns = collections.Counter(), collections.Counter(), collections.Counter()
    for text in texts:
        small.update(re.findall(r"\b[a-z]{3,}\b", text))
        capitals.update(re.findall(r"(?<=[a-z,] )([A-Z][a-z]{2,10})\b", text))
        nouns.update(re.findall(r"\b(?:[Aa]n?|[Tt]he|his|her) ([a-z]{3,12})(?=[.,;!?])", text))
    known = sorted(w for w, n in capitals.items() if n >= 5 and small[w.lower()] <= 1 and w not in NOT_NAMES)
    found = sorted(w for w, n in nouns.items() if n >= 6 and n > 0.06 * small[w] and not re.search(r"(?:ing|ly|ed|ous|ful|ness|tion|sion|ment|ity|less|ance|ence|ism|ship)$", w))
    return known, found


class Pools:
    def __init__(self, names=(), nouns=()):
        self.names, self.nouns = list(names), list(nouns)

    def person(self, rng, taken):
        """(name, whether it is a girl's or a woman's)"""
        while True:
            draw, girl = rng.random(), rng.random() < 0.5
            if draw < 0.12:
                name = made_up_name(rng)
            elif draw < 0.3 and self.names:
                name = rng.choice(self.names)
            else:
                name = rng.choice(SHE_NAMES if girl else HE_NAMES)
            if name not in taken:
                taken.add(name)
                return name, girl

    def thing(self, rng, taken=()):
        while True:
            word = rng.choice(self.nouns) if self.nouns and rng.random() < 0.2 else rng.choice(THINGS)
            if word not in taken:
                return word

    def kind(self, rng, taken=()):
        """Of a hero: an animal or a person, or now and then a thing that lives."""
        while True:
            draw = rng.random()
            word = rng.choice(ANIMALS if draw < 0.36 else MORE_ANIMALS if draw < 0.44 else PEOPLE if draw < 0.58 else MORE_PEOPLE if draw < 0.66 else
                              CHILD if draw < 0.86 else FAMILY if draw < 0.92 else THINGS)
            word = word.replace("-", " ")
            if word not in taken:
                return word
