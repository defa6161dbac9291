"""Short questions with short answers, from tables (here and in facts.txt) and from a little arithmetic, in many words."""
import re

from texts import read_lines

OPPOSITES = """hot cold, big small, tall short, fast slow, happy sad, day night, up down, in out, open closed,
    light dark, hard soft, wet dry, full empty, old young, new old, early late, loud quiet, rich poor, strong weak,
    clean dirty, thick thin, wide narrow, deep shallow, high low, near far, left right, front back, good bad,
    right wrong, true false, first last, top bottom, begin end, push pull, buy sell, give take, love hate, laugh cry,
    win lose, find lose, sleep wake, come go, stop start, sweet sour, sharp blunt, smooth rough, heavy light,
    cheap expensive, safe dangerous, brave cowardly, kind cruel, polite rude, easy difficult, beautiful ugly,
    alive dead, asleep awake, inside outside, above below, before after, over under, always never, more less,
    many few, hello goodbye, friend enemy, summer winter, north south, east west, morning evening, black white,
    question answer, remember forget, arrive leave, long short, warm cool, noisy quiet, tight loose, straight crooked"""
COLOURS = """grass green, the sky blue, snow white, a banana yellow, a lemon yellow, blood red, a strawberry red,
    coal black, milk white, an orange orange, a carrot orange, a pumpkin orange, a tomato red, the sun yellow,
    chocolate brown, a cucumber green, a leaf green, the sea blue, a polar bear white, a crow black, a frog green,
    a flamingo pink, an elephant gray, a fire engine red, a swan white, a plum purple, a raspberry red, salt white,
    a fox red, a pig pink, a raven black, a pea green, gold yellow, ink black, cotton white, a cherry red,
    lavender purple, an eggplant purple, honey golden, sand yellow, soil brown, a cloud white, spinach green"""
SOUNDS = """dog woof bark, cat meow purr, cow moo, sheep baa, pig oink, duck quack, horse neigh, lion roar, bee buzz,
    owl hoot, frog croak, snake hiss, mouse squeak, wolf howl, rooster cock-a-doodle-doo crow, hen cluck, bird tweet,
    donkey hee-haw, goat bleat, turkey gobble, crow caw, bear growl, monkey chatter, pigeon coo"""
YOUNG = """dog puppy, cat kitten, cow calf, horse foal, sheep lamb, pig piglet, hen chick, duck duckling, goose gosling,
    frog tadpole, bear cub, lion cub, deer fawn, goat kid, swan cygnet, kangaroo joey, owl owlet, butterfly caterpillar,
    rabbit bunny, elephant calf, whale calf, wolf pup, seal pup, fox cub"""
LEGS = "dog four, cat four, bird two, spider eight, ant six, bee six, horse four, cow four, duck two, fish none, " \
       "snake none, hen two, elephant four, butterfly six, lion four, penguin two, mouse four, sheep four, fly six, octopus eight"
HOMES = """bird in a nest, bee in a hive, dog in a kennel, fish in water, bear in a den, rabbit in a burrow, fox in a den,
    spider in a web, horse in a stable, cow in a barn, ant in an anthill, polar bear in the Arctic, camel in the desert,
    whale in the sea, squirrel in a tree, penguin in Antarctica, shark in the sea, mole underground, king in a castle,
    pig in a sty, crab by the sea, beaver in a lodge, monkey in the jungle, lion in the savanna, duck on a pond"""
FOOD = """rabbit carrots, cow grass, monkey bananas, squirrel nuts, mouse cheese, bee nectar, panda bamboo, cat mice,
    bear honey, horse hay, spider flies, penguin fish, dog bones, lion meat, koala leaves, owl mice, frog flies,
    giraffe leaves, sheep grass, caterpillar leaves, seal fish, hen seeds, wolf meat, deer grass"""
USES = """knife cut, spoon eat soup, pen write, broom sweep the floor, key open a door, umbrella stay dry, clock tell the time,
    bed sleep, oven bake, hammer drive nails, needle sew, scissors cut paper, telescope look at the stars, towel dry yourself,
    ladder climb, lamp see in the dark, boat cross the water, soap wash, brush paint, cup drink, map find the way,
    kettle boil water, phone call somebody, camera take images, comb comb your hair, bag carry things, chair sit on,
    compass find north, pillow rest your head, toothbrush clean your teeth, spade dig, bucket carry water"""
JOBS = """baker bakes bread, teacher teaches children, doctor helps the sick, farmer grows food, pilot flies planes,
    fisherman catches fish, painter paints images, cook prepares meals, gardener grows plants, tailor makes clothes,
    firefighter puts out fires, librarian looks after books, carpenter makes things of wood, postman brings letters,
    singer sings songs, author writes books, dentist looks after teeth, vet helps sick animals, sailor sails a ship,
    astronaut flies to space, shepherd looks after sheep, judge decides in court, barber cuts hair, actor plays a part,
    detective solves crimes, cobbler mends shoes, miner digs for coal, waiter brings the food"""
CAPITALS = """France Paris, Germany Berlin, Italy Rome, Spain Madrid, England London, Japan Tokyo, China Beijing,
    Russia Moscow, Egypt Cairo, Greece Athens, Portugal Lisbon, Austria Vienna, Poland Warsaw, Sweden Stockholm,
    Norway Oslo, Denmark Copenhagen, Finland Helsinki, Ireland Dublin, Canada Ottawa, India Delhi, Turkey Ankara,
    Cuba Havana, Peru Lima, Hungary Budapest, Belgium Brussels, Kenya Nairobi, Scotland Edinburgh"""
KINDS = {"animal": "dog cat horse lion bear fox rabbit mouse elephant tiger cow sheep frog wolf whale owl",
         "fruit": "apple banana pear orange cherry plum grape lemon strawberry peach",
         "vegetable": "carrot potato cabbage onion pea bean pumpkin spinach",
         "colour": "red blue green yellow orange purple pink brown",
         "bird": "owl eagle sparrow swan crow pigeon duck robin parrot",
         "flower": "rose tulip daisy lily sunflower violet",
         "tree": "oak pine birch maple willow apple",
         "tool": "hammer saw drill spade rake axe",
         "vehicle": "car bus train boat plane bicycle truck",
         "instrument": "piano violin guitar drum flute trumpet",
         "season": "spring summer autumn winter",
         "toy": "doll ball kite puzzle yo-yo"}
CAN = {"fly": ("bird bee butterfly owl plane eagle bat duck", "dog fish cow snake horse elephant car stone"),
       "swim": ("fish duck whale frog shark dolphin penguin otter", "stone chair hen spoon"),
       "bark": ("dog", "cat bird fish cow mouse"), "sing": ("bird singer canary", "stone fish table shoe"),
       "talk": ("teacher man girl boy", "table stone tree shoe"), "roll": ("ball wheel marble", "house tree bed")}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " \
          "seventeen eighteen nineteen twenty".split()
MANY = {"How many days are there in a week": "Seven", "How many months are there in a year": "Twelve",
        "How many hours are there in a day": "Twenty-four", "How many minutes are there in an hour": "Sixty",
        "How many seasons are there in a year": "Four", "How many fingers are on one hand": "Five",
        "How many wheels does a bicycle have": "Two", "How many wheels does a car have": "Four",
        "How many sides does a triangle have": "Three", "How many sides does a square have": "Four",
        "How many eggs are in a dozen": "Twelve", "How many letters are in the alphabet": "Twenty-six",
        "How many toes do two feet have": "Ten", "How many eyes does a cat have": "Two",
        "How many wheels does a tricycle have": "Three", "How many seconds are there in a minute": "Sixty"}
PLAIN = {"What do bees make?": "Honey.", "What do we breathe?": "Air.", "What falls from the clouds?": "Rain.",
         "What melts in the sun?": "Ice.", "What is frozen water?": "Ice.", "What shines in the sky by day?": "The sun.",
         "What shines in the sky at night?": "The moon.", "What do hens lay?": "Eggs.", "What comes from a cow?": "Milk.",
         "What is bread made of?": "Flour.", "What is the biggest animal?": "The blue whale.",
         "What is the tallest animal?": "The giraffe.", "What is the fastest animal on land?": "The cheetah.",
         "What planet do we live on?": "The Earth.", "What do you wear on your feet?": "Shoes.",
         "What do you wear on your head?": "A hat.", "What do you wear on your hands?": "Gloves.",
         "What do plants need to grow?": "Water and light.", "What is the king of the jungle?": "The lion.",
         "What do we see with?": "Our eyes.", "What do we hear with?": "Our ears.", "What do we smell with?": "Our nose.",
         "What is the season with snow?": "Winter.", "When do leaves fall?": "In autumn.", "When is it hot?": "In summer.",
         "What do caterpillars turn into?": "Butterflies.", "What does a tadpole turn into?": "A frog.",
         "What has a trunk and big ears?": "An elephant.", "What has stripes and looks like a horse?": "A zebra.",
         "What is the largest ocean?": "The Pacific.", "What is the colour of the sun?": "Yellow."}
TALK = [(("Hello!", "Hi!", "Hello.", "Hi there.", "Good morning!", "Hey!"), "Hello! What may I do for you?"),
        (("Who are you?", "What are you?", "What is your name?", "Introduce yourself."),
         "I am a small language model. I tell stories and answer short questions."),
        (("What can you do?", "What can you help me with?", "How can you help me?", "Help."),
         "I can tell a story about what you like, answer a short question, or find something in a short text."),
        (("Thank you!", "Thanks.", "Thank you very much.", "Thanks a lot!"), "You are welcome!"),
        (("Goodbye!", "Bye.", "Good night!", "See you later."), "Goodbye!"),
        (("How are you?", "How are you today?", "How do you do?"), "I am fine, thank you.")]


def pairs(table):
    for line in " ".join(table.split()).split(", "):
        yield line


def a(word):
    return ("an " if word[0] in "aeiou" and not word.startswith("uni") else "a ") + word


def capital(text):
    return text[0].upper() + text[1:]


def each_fact():
    """(wordings of a question, answer)"""
    for line in pairs(OPPOSITES):
        one, other = line.split()
        for x, y in ((one, other), (other, one)):
            yield (f"What is the opposite of {x}?", f"What is the opposite of \"{x}\"?", f"Give the opposite of {x}.",
                   f"Tell me the opposite of {x}.", f"Which word means the opposite of {x}?"), capital(y)
    for line in pairs(COLOURS):
        thing, colour = line.rsplit(" ", 1)
        yield (f"What colour is {thing}?", f"What color is {thing}?", f"Which colour does {thing} have?",
               f"Name the colour of {thing}."), capital(colour)
    for line in pairs(SOUNDS):
        animal, sound = line.split()[:2]
        yield (f"What sound does {a(animal)} make?", f"What does {a(animal)} say?", f"Which sound does {a(animal)} make?"), capital(sound)
        yield (f"Which animal says \"{sound}\"?", f"What animal says {sound}?"), capital(a(animal))
    for line in pairs(YOUNG):
        animal, young = line.split()
        yield (f"What is a baby {animal} called?", f"What is a young {animal} called?", f"What do you call a baby {animal}?",
               f"What do we call the young of {a(animal)}?"), capital(a(young))
    for line in pairs(LEGS):
        animal, n = line.split()
        yield (f"How many legs does {a(animal)} have?", f"How many legs has {a(animal)}?"), capital(n)
    for line in pairs(HOMES):
        animal, home = line.split(" ", 1) if not line.startswith("polar") else ("polar bear", "in the Arctic")
        yield (f"Where does {a(animal)} live?", f"Tell me where {a(animal)} lives."), capital(home)
    for line in pairs(FOOD):
        animal, food = line.split(" ", 1)
        yield (f"What does {a(animal)} eat?", f"What does {a(animal)} like to eat?", f"What food does {a(animal)} like?"), capital(food)
    for line in pairs(USES):
        tool, use = line.split(" ", 1)
        yield (f"What is {a(tool)} for?", f"What do you do with {a(tool)}?", f"What is {a(tool)} used for?"), f"To {use}"
        yield (f"What do you need to {use}?", f"What do you use to {use}?"), capital(a(tool))
    for line in pairs(JOBS):
        job, does = line.split(" ", 1)
        yield (f"What does {a(job)} do?", f"What is the work of {a(job)}?", f"What is the job of {a(job)}?"), f"{capital(a(job))} {does}"
        yield (f"Who {does}?",), capital(a(job))
    for line in pairs(CAPITALS):
        country, city = line.split()
        yield (f"What is the capital of {country}?", f"Which city is the capital of {country}?", f"Name the capital of {country}."), city
        yield (f"In which country is {city}?", f"{city} is the capital of which country?"), country
    for kind, words in KINDS.items():
        for word in words.split():
            yield (f"What is {a(word)}?", f"What kind of thing is {a(word)}?"), capital(a(kind)) if kind != "colour" else "A colour"
    for verb, (can, cannot) in CAN.items():
        for words, answer in ((can, "Yes"), (cannot, "No")):
            for word in words.split():
                yield (f"Can {a(word)} {verb}?", f"Is {a(word)} able to {verb}?"), answer
    for names, unit in ((DAYS, "day"), (MONTHS, "month")):
        for i, x in enumerate(names):
            after, before = names[(i + 1) % len(names)], names[i - 1]
            yield (f"What {unit} comes after {x}?", f"Which {unit} follows {x}?", f"What is the {unit} after {x}?"), after
            yield (f"What {unit} comes before {x}?", f"Which {unit} is before {x}?", f"What is the {unit} before {x}?"), before
    for i, x in enumerate(NUMBERS[1:20], 1):
        yield (f"What number comes after {x}?", f"Which number follows {x}?"), capital(NUMBERS[i + 1])
        yield (f"What number comes before {x}?", f"Which number is before {x}?"), capital(NUMBERS[i - 1])
        yield (f"Count to {x}.", f"Please count to {x}.", f"Can you count to {x}?"), capital(", ".join(NUMBERS[1:i + 1]))
    for question, n in MANY.items():
        yield (question + "?", "Tell me: h" + question[1:] + "?"), n
    for question, answer in PLAIN.items():
        yield (question,), answer.rstrip(".")


# Animals from small to big, and from slow to fast; each is clearly ahead of the third one before it.
BY_SIZE = "ant bee mouse frog rat rabbit cat dog sheep pig cow horse giraffe elephant whale".split()
BY_SPEED = "snail turtle mouse pig rabbit dog horse cheetah plane rocket".split()
WORDS = """cat dog sun house tree fish book bird moon apple bread water milk hand foot star ball door king queen ship rain snow wind
    fire stone rose bear wolf goat duck frog nest road lake hill boat ring lamp chair table bed cup hat shoe""".split()
ODD = {"animal": "apple table car shoe", "fruit": "dog chair carrot stone", "colour": "dog table Monday bread",
       "vehicle": "apple cat rose bread", "tool": "banana cow rose cloud", "bird": "dog cow shark table"}


def read_facts(name):
    """[(wordings, answer)] of a file."""
    for line in read_lines(name):
        wordings, answer = line.split(" > ")
        yield tuple(wordings.split(" | ")), answer


def lists(rng):
    """Things that are named when asked for so many of a kind."""
    kind = rng.choice([k for k in KINDS if k not in ("season",)])
    n = rng.choice((1, 2, 2, 3, 3, 3, 4))
    some = rng.sample(KINDS[kind].split(), n)
    if n == 1:
        ask = rng.choice(("Name {}.", "Tell me {}.", "Give me the name of {}.", "Can you name {}?"))
        return ask.format(a(kind)), capital(a(some[0]) if kind not in ("colour", "season", "vegetable") else some[0]) + "."
    plural = kind + "s"
    ask = rng.choice(("Name {} {}.", "Tell me {} {}.", "Give me {} {}.", "Can you name {} {}?", "List {} {}.", "What are {} {}?", "Name me {} {}, please."))
    return ask.format(rng.choice((NUMBERS[n], str(n))), plural), capital(", ".join(some[:-1]) + " and " + some[-1]) + "."


def which_kind(rng):
    """Whether a thing is of a kind, or which of three is, or is not."""
    one, other = rng.sample([k for k in KINDS if k not in ("season", "tree", "bird", "colour")], 2)
    is_one, are_not = rng.choice(KINDS[one].split()), rng.sample(KINDS[other].split(), 2)
    draw = rng.random()
    if draw < 0.4:
        yes = rng.random() < 0.5
        return f"Is {a(is_one if yes else are_not[0])} {a(one)}?", "Yes." if yes else "No."
    if draw < 0.6:
        kind = rng.choice(sorted(ODD))
        odd, three = rng.choice(ODD[kind].split()), rng.sample(KINDS[kind].split(), 3)
        four = three + [odd]
        rng.shuffle(four)
        ask = rng.choice(("Which one does not belong: {}?", "Which word does not fit: {}?", "Which is the odd one out: {}?"))
        return ask.format(", ".join(four[:-1]) + " or " + four[-1]), capital(odd) + "."
    three = are_not[:rng.choice((1, 2))] + [is_one]
    rng.shuffle(three)
    ask = rng.choice(("Which one is {}: {}?", "Which of these is {}: {}?", "What is {}: {}?"))
    return ask.format(a(one), ", ".join(three[:-1]) + " or " + three[-1]), capital(a(is_one)) + "."


def compare(rng):
    """Which of two is bigger, faster, more."""
    draw = rng.random()
    if draw < 0.4:
        i, j = sorted(rng.sample(range(1, 21) if rng.random() < 0.6 else range(1, 101), 2))
        more = rng.random() < 0.5
        x, y = rng.sample((i, j), 2)
        ask = rng.choice(("Which number is {}, {} or {}?", "What is {}: {} or {}?", "Which is {}, {} or {}?"))
        word = rng.choice(("bigger", "larger", "greater", "more")) if more else rng.choice(("smaller", "less"))
        return ask.format(word, x, y), f"{j if more else i}."
    line, up, down = (BY_SIZE, ("bigger", "heavier", "larger"), ("smaller", "lighter")) if draw < 0.75 else (BY_SPEED, ("faster",), ("slower",))
    i = rng.randrange(len(line) - 3)
    j = rng.randrange(i + 3, len(line))
    more = rng.random() < 0.5
    x, y = rng.sample((line[i], line[j]), 2)
    if rng.random() < 0.25:
        ask = f"Is {a(x)} {rng.choice(up if more else down)} than {a(y)}?"
        return ask, "Yes." if (line.index(x) > line.index(y)) == more else "No."
    ask = rng.choice(("Which is {}, {} or {}?", "What is {}, {} or {}?", "Who is {}, {} or {}?", "Which one is {}: {} or {}?"))
    return ask.format(rng.choice(up if more else down), a(x), a(y)), capital(a(line[j if more else i])) + "."


def arithmetic(rng):
    x, y = rng.randrange(0, 11), rng.randrange(0, 11)
    draw = rng.random()
    if draw < 0.5:
        asks, n = ("What is {} + {}?", "What is {} plus {}?", "How much is {} plus {}?", "{} + {} =", "What do {} and {} make?", "Add {} and {}."), x + y
    elif draw < 0.85:
        x, y = x + y, y
        asks, n = ("What is {} - {}?", "What is {} minus {}?", "How much is {} minus {}?", "{} - {} ="), x - y
    else:
        x, y = rng.choice((1, 2, 3, 4, 5, 10)), rng.randrange(1, 11)
        asks, n = ("What is {} times {}?", "What is {} x {}?", "How much is {} times {}?"), x * y
    ask = rng.choice(asks)
    words = rng.random() < 0.4 and max(x, y) <= 20 and n <= 20 and not re.search("[-+=x] ?[{]?", ask)
    return (ask.format(NUMBERS[x], NUMBERS[y]), capital(NUMBERS[n]) + ".") if words else (ask.format(x, y), f"{n}.")


def of_letters(rng):
    """Spelling, first letters, days from today, numbers in a row."""
    draw, word = rng.random(), rng.choice(WORDS)
    if draw < 0.25:
        ask = rng.choice(("Which letter does {} begin with?", "What is the first letter of {}?", "What letter does the word {} start with?"))
        return ask.format(f'"{word}"' if rng.random() < 0.5 else word), word[0].upper() + "."
    if draw < 0.4:
        return rng.choice(("Spell {}.", "How do you spell {}?", "Can you spell {}?")).format(word), "-".join(word.upper()) + "."
    if draw < 0.5:
        return rng.choice(("How many letters does the word {} have?", "How many letters are in {}?")).format(word), capital(NUMBERS[len(word)]) + "."
    if draw < 0.75:
        i = rng.randrange(7)
        step, what = rng.choice(((1, "is it tomorrow"), (-1, "was it yesterday"), (1, "is tomorrow"), (-1, "was yesterday"), (2, "is the day after tomorrow")))
        return rng.choice(("If today is {}, what day {}?", "Today is {}. What day {}?")).format(DAYS[i], what), DAYS[(i + step) % 7] + "."
    n = rng.randrange(1, 99)
    after = rng.random() < 0.5
    return f"{rng.choice(('What number', 'Which number'))} {'comes after' if after else 'comes before'} {n}?", f"{n + 1 if after else n - 1}."


def asked(question, rng):
    """A question as people type it."""
    draw = rng.random()
    if draw < 0.06:
        question = question.replace("What is ", "What's ", 1)
    elif draw < 0.14:
        question = question[0].lower() + question[1:].rstrip("?.")
    elif draw < 0.18:
        question = rng.choice(("Please tell me: {}", "Can you tell me: {}", "I have a question: {}", "Tell me, {}")).format(question[0].lower() + question[1:])
    elif draw < 0.22:
        question = rng.choice(("Question: {}", "{} Answer in one word.", "{} Please answer briefly.", "Answer this question: {}")).format(question)
    return question


OTHERS = (lists, which_kind, compare, arithmetic, of_letters)


def short_chats(n, held_out, rng):
    """Chats of one to six short questions."""
    tables, more = list(each_fact()), list(read_facts("facts.txt"))
    for _ in range(n):
        turns = []
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4, 6))):
            draw = rng.random()
            if draw < 0.03:
                wordings, answer = rng.choice(TALK)
                question = rng.choice(wordings)
            elif draw < 0.28:
                question, answer = rng.choice(OTHERS)(rng)
            else:
                wordings, answer = rng.choice(tables if draw < 0.58 else more)
                question, answer = rng.choice(wordings), answer + "."
            if question not in held_out:
                turns.append((asked(question, rng), answer))
        if turns:
            yield turns
