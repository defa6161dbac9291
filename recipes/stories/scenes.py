"""Passages with questions, from files of sentences (scenes.txt) and of whole passages (passages.txt).

Every line is new each time it is read: {slots} are drawn, and of (ways|to say) one is taken. What is answered is in
the passage, so a model can only learn to look there. {A}, {B}, {C} are people, with {he}, {his}, {him}, {himself} for
A and {Bhe}, {Bhis}, {Bhim} for B; {F} a girl or woman, {M} a boy or man, {T} somebody who is called Mrs or Mr, with
{Tshe}. {He} is {he} at the beginning of a sentence. {thing} is one of LISTS["thing"], {thing2} another one, and
{a:thing} has its article. {c}, {c2} are colours and {n}, {n2} numbers.
"""
import re

from facts import NUMBERS, DAYS, MONTHS, a, capital
from texts import read_lines
from worlds import BEAST_NAMES, BOYS, GIRLS

MORE_GIRLS = """Mila Lilly Freya Agnes Sofia Elena Yuki Amina Fatima Leila Priya Ines Carmen Ingrid Astrid Marta Zara Chloe Ruby
    Violet Pearl Stella Iris Flora Nadia Tanya Sonja Heidi Bridget Mabel Edith Joan Naomi Esther Miriam Aisha Mei Noor Rosie""".split()
MORE_BOYS = """Omar Ali Hassan Ravi Kenji Pablo Diego Mateo Luca Marco Sven Lars Olaf Boris Ivan Jakub Finlay Callum Angus Owen Rhys
    Hugo Louis Pierre Anton Otis Ezra Caleb Silas Jasper Rufus Arthur Edgar Alfred Herbert Bruno Milan Tariq Chen Kofi Ned""".split()
FAMILY = "Brown Green Miller Baker Hill Wood Stone Fisher Lane Winter Rose Bell King Young Marsh Field Price Fox Cook Grant".split()
WORDS = {
    "c": "red|blue|green|yellow|black|white|brown|purple|pink|orange|gray|golden|silver",
    "n": "|".join(NUMBERS[2:13]),
    "thing": "kite|ball|bicycle|lamp|book|boat|drum|bag|cup|umbrella|basket|blanket|bell|guitar|watch|ring|doll|key|balloon|chair|bottle|"
             "wagon|pencil|necklace|mirror|box|camera|clock|flute|globe|hammer|lantern|letter|map|mug|painting|pen|plate|pot|puzzle|radio|"
             "robot|rope|shell|spoon|suitcase|sword|teapot|telescope|tent|ticket|top|towel|train|vase|whistle|wheel|candle|coin|feather|"
             "ladder|bucket|brush|pillow|notebook|stamp|marble|crown|flag|magnet|torch",
    "cloth": "hat|scarf|coat|shirt|sweater|jacket|cap|dress|belt|apron|glove|sock|shoe|boot|tie|vest|hood|raincoat",
    "stuffs": "nails|buttons|stamps|shells|coins|letters|nuts|pencils|marbles|beads|cookies|seeds|photos|candles|raisins|cherries|carrots|"
              "onions|herbs|honey|salt|pepper|sugar|cinnamon|almonds|cheese",
    "fruits": "apples|pears|plums|lemons|oranges|bananas|peaches|melons|cherries|grapes|figs|strawberries",
    "vegs": "carrots|beans|peas|potatoes|onions|pumpkins|cabbages|tomatoes|turnips|leeks|beets",
    "food": "soup|bread|pancakes|rice|fish|noodles|porridge|potatoes|salad|pizza|pie|cake|cheese|eggs|beans|toast|sausages|dumplings|"
            "apples|berries|nuts|honey|cookies|muffins|spaghetti|sandwiches|chicken|cornflakes|yogurt|plums|waffles",
    "food1": "cake|pie|loaf of bread|pizza|pudding|apple tart|cherry cake|pancake|carrot cake|plum pie|strudel",
    "drink": "milk|tea|water|orange juice|cocoa|lemonade|apple juice|coffee|hot chocolate|soda",
    "pet": "dog|cat|rabbit|parrot|hamster|turtle|goldfish|pony|mouse|duck|goat|lamb|canary|guinea pig|lizard|puppy|kitten",
    "petdo": "chase leaves|sleep in the sun|sit on the roof|play with string|eat grass|hide in boxes|bite shoes|sing in the morning|"
             "look out of the window|dig holes|ride in the basket|watch the rain",
    "petdoA": "read|sing|draw|write a letter|knit|count the stars|tell a story to the cat|hum",
    "petsnd": "howled|sang|scratched at the doors|danced on the roofs|snored|shouted|banged on a drum|laughed",
    "petsnd2": "barked|nodded|knocked|sneezed|clapped",
    "petwel": "runs to the door|jumps on the table|makes a soft noise|hides and waits to be found|turns in circles|brings a slipper",
    "wild": "fox|rabbit|bear|mouse|owl|frog|squirrel|hedgehog|turtle|raccoon|beaver|badger|otter|crow|donkey|monkey|wolf|deer|lion|elephant|"
            "tiger|hare|mole|snail|goose|swan|camel|zebra|penguin|seal|snake|eagle|toad|rat|bat|lizard|crab|whale|giraffe|kangaroo",
    "bird": "crow|seagull|sparrow|swallow|pigeon|robin|magpie|stork|goose|swan",
    "birds": "ducks|swans|geese|owls|crows|pigeons|sparrows|frogs|butterflies|rabbits|deer|squirrels|boats|stars|snails|bees|horses",
    "herd": "cows|sheep|goats|pigs|horses|geese|hens|donkeys|ducks",
    "hatch": "duckling|chick|turtle|lizard|dragon|owl|snake|gosling|penguin|crocodile",
    "place": "the zoo|the market|the museum|the beach|the library|the mountains|the circus|the castle|the lake|the harbour|the forest|"
             "the theater|the station|the park|the bakery|the city|the farm|the hospital|the cinema|the playground|the swimming pool|"
             "the airport|the church|the post office|the shop|the river|the island|the waterfall|the school",
    "place1": "library|museum|bakery|theater|station|shop|church|school|market hall|cinema|castle|post office|bridge",
    "town": "Millbrook|Ashford|Oakdale|Rivertown|Stonebridge|Greenhill|Sandport|Brookfield|Elmwood|Fairview|Lakeside|Redcliff|Hazelton|"
            "Northgate|Summerfield|Winterton|Appleby|Bluewater|Copperhill|Darnley|Eastham|Foxton|Goldcrest|Hillford|Ironbridge|Kingsley|"
            "London|Paris|Rome|Berlin|Boston|Chicago|Dublin|Oslo|Madrid|Vienna",
    "country": "France|Germany|Italy|Spain|England|Japan|China|Russia|Egypt|Greece|Portugal|Austria|Poland|Sweden|Norway|Denmark|Finland|"
               "Ireland|Canada|India|Turkey|Cuba|Peru|Hungary|Belgium|Kenya|Scotland|Brazil|Mexico|Iceland",
    "where": "on a river|by the sea|in the mountains|in a valley|on an island|near a forest|at the foot of a hill|in the desert",
    "home": "in a hollow tree|under a bridge|near a pond|in a deep forest|in a cave|in an old barn|by a stream|under a hill|at the edge of a field",
    "spot": "in the park|under the bed|in the garden|on the beach|behind the shed|in the attic|near the bridge|on the bus|by the lake|"
            "in the kitchen|under a bench|in the woods|at the market|in the barn|beside the road|in an old tree|at school|on the roof|"
            "in the cellar|on the table|in the drawer|behind the curtain|under the sofa|on the windowsill|in the fridge|next to the door|"
            "on the shelf|between two stones|in a basket|behind the clock|under the stairs|in the car|at the bus stop|by the fireplace|in the tent",
    "spotC": "On the table|Under the table|On a chair|In the sink|In front of the stove|On the shelf",
    "spotdoor": "the gate|the chest|the cellar|the barn|the cupboard|the back door|the attic|the shed|the drawer|the tower|the ladder|the wall",
    "room": "the kitchen|the bathroom|the bedroom|the living room|the attic|the cellar|the hall|the garage|the garden|the office",
    "part": "door|roof|fence|wall|gate|window|balcony|chimney|ceiling|table|bench|stairs",
    "build": "treehouse|boat|bridge|tower|wall|hut|sled|raft|cabin|swing|tent|birdhouse|barn|shed|lighthouse|windmill",
    "material": "wood|stone|glass|paper|gold|iron|clay|straw|ice|snow|brick|leather|wool|silk|silver|copper|plastic|bamboo",
    "tool": "a hammer|a screwdriver|some glue|tape|a needle|a saw|string|a wrench|nails|a ladder|a paintbrush|pliers",
    "job": "baker|farmer|fisherman|gardener|teacher|painter|doctor|tailor|carpenter|librarian|postman|shepherd|miller|clockmaker|sailor|cook|"
           "shoemaker|singer|pilot|nurse|dentist|vet|firefighter|policeman|engineer|astronaut|dancer|detective|scientist|writer|driver|clown|"
           "photographer|lawyer|plumber|butcher|waiter|judge|actor|captain",
    "did": "read a book|went for a swim|built a snowman|baked bread|cleaned the windows|wrote a letter|watered the plants|climbed a tree|"
           "played chess|fed the ducks|painted an image|mended the fence|picked apples|took a nap|went skating|washed the car|planted a tree|"
           "visited a friend|sang a song|drew a map|made soup|cut the grass|rode a horse|slept in the sun|counted the stars|went shopping|"
           "caught a fish|flew a kite|looked at old photos|bought new shoes|practiced the violin",
    "did3": "fixes clocks|reads the newspaper|walks by the river|feeds the hens|takes a nap|helps in the shop|paints small images|cuts wood",
    "can": "swim|sing|paint|dance|cook|read|skate|juggle|whistle|write poems|climb trees|ride a bicycle|play the piano|play the guitar|draw|bake bread|"
           "fly|dive|tell stories|do magic|play chess|ski|row a boat|count to a hundred|knit|play the flute",
    "sport": "football|tennis|chess|basketball|hockey|cards|volleyball|badminton|hide and seek|table tennis|baseball|marbles",
    "subject": "math|music|history|art|science|English|geography|drawing|reading|sports|biology|French",
    "instrument": "piano|violin|guitar|flute|trumpet|drum|harp|cello|accordion|clarinet|tuba|banjo",
    "day": "|".join(DAYS), "month": "|".join(MONTHS),
    "weather": "sunny|rainy|foggy|windy|cloudy|stormy|cold|warm|hot|dry|misty",
    "ride": "by train|by bus|by bicycle|by boat|on foot|by car|by taxi|by tram|by plane|on a horse",
    "ord": "first|second|third|fourth|fifth|sixth|seventh|eighth|top",
    "adj": "brave|clever|lazy|proud|kind|greedy|shy|hungry|tired|old|young|small|big|strong|quick|slow|curious|friendly|sleepy|funny|grumpy|polite",
    "feel": "sad|happy|tired|angry|excited|proud|lonely|nervous|bored|worried|surprised|cheerful|disappointed|calm",
    "why": "the boat was broken|nobody came to the party|the cat was ill|it was time to leave|a letter had come|school was over|the cake was ready|"
           "the lost ring was back|the way was long|the bus was late|the door was locked|there was thunder|the image won a prize|"
           "the neighbours were loud|the wind was too strong|the shoes were too small|the bridge was closed|the train did not come|"
           "the soup was cold|a tooth hurt|there was no milk|the key was missing|the phone rang all the time|the moon was so bright",
    "fear": "the dark|thunder|spiders|deep water|big dogs|heights|ghosts|the wind|mice|loud noises|snakes|strangers|bats|lightning|bees|the dentist",
    "say": "Wait for me|I am hungry|Look at the sky|Where is the bus|Let us go home|That is not fair|I have an idea|Close the door|"
           "What a day|We are lost|I found it|Come quickly|Do not be afraid|It is my turn|Good morning|I am cold|Who is there|Be careful",
    "topic": "pirates|dinosaurs|horses|the moon|trains|insects|a lost dog|two brothers|old castles|whales|space|a wizard|volcanoes|birds|robots|ships",
    "museum": "old sword|golden mask|stone lion|wooden ship|silver cup|dinosaur bone|clay pot|king's crown|huge painting|stuffed bear|meteorite|mummy",
    "flowers": "roses|tulips|daisies|lilies|sunflowers|violets|poppies|daffodils|bluebells|pansies",
    "tree": "oak|pine|birch|maple|willow|apple|cherry|pear|lemon|chestnut|walnut|fig",
    "taste": "salty|sweet|sour|bitter|hot|cold|thin|thick|spicy",
    "body": "knee|arm|foot|hand|head|elbow|finger|toe|back|shoulder|ankle|nose",
    "task": "carry the bags|find the way home|mend the fence|pick the apples|wash the windows|paint the door|feed the hens|water the plants|"
            "clean the boat|look for the cat|move the piano|dig a hole|chop the wood|cook dinner|do the homework|wrap the presents|push the car",
    "refuse": "was too tired|had no time|was afraid|did not want to|was asleep|had to go home|forgot it",
    "boat": "boat|ship|sailing boat|ferry|steamer", "rel": "sister|brother|mother|father|grandmother|grandfather|aunt|uncle|cousin|friend|teacher",
}
LISTS = {kind: words.split("|") for kind, words in WORDS.items()}


def open_classes():
    """{kind: words} of nouns.txt; a word of several parts is written with "-" there."""
    lines = [line.split(": ") for line in read_lines("nouns.txt")]
    return {kind: [w.replace("-", " ") for w in words.split()] for kind, words in lines}


OPEN = open_classes()
ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pr r s sh st t th tr v w z".split() + [""] * 3
VOWELS = "a e i o u a e i o ai ee ia ey ou".split()
CODAS = "n r l s m t k nd rt ck ng x".split() + [""] * 12


def made_up_name(rng):
    """A name that nobody has: what it is can only be read."""
    parts = ["".join((rng.choice(ONSETS), rng.choice(VOWELS), rng.choice(CODAS))) for _ in range(rng.choice((1, 2, 2, 2, 3)))]
    name = capital("".join(parts))
    return name if len(name) > 2 else name + rng.choice("nlr") + rng.choice("aeo")


SLOT = re.compile(r"\{(Aa:|a:)?([A-Za-z]+?)(\d?)\}")
WAYS = re.compile(r"\(([^()]*\|[^()]*)\)")


def one_way(text, rng):
    """One of the (ways|to say) each."""
    return WAYS.sub(lambda m: rng.choice(m.group(1).split("|")), text)


class Cast:
    """What the slots of one line stand for."""

    def __init__(self, rng, taken=()):
        self.rng, self.put, self.taken = rng, {}, set(taken)
        self.girl = {who: rng.random() < 0.5 for who in "ABCT"} | {"F": True, "M": False}
        self.rare = rng.choice((0, 0, 0.3, 0.7)) # how many names and nouns are in none of the lists
        self.numbers = [str(n) for n in range(2, 100)] if rng.random() < 0.2 else LISTS["n"]

    def name(self, who):
        girl = self.girl[who]
        strange = self.rng.random() < self.rare
        if who == "T":
            return self.rng.choice(("Mrs ", "Mrs. ", "Miss ") if girl else ("Mr ", "Mr. ")) + (made_up_name(self.rng) if strange else self.rng.choice(FAMILY))
        if strange:
            return self.fresh([made_up_name(self.rng)])
        return self.fresh((GIRLS + MORE_GIRLS) if girl else (BOYS + MORE_BOYS))

    def fresh(self, words):
        word = self.rng.choice([w for w in words if w not in self.taken] or words)
        self.taken.add(word)
        return word

    def listed(self):
        return LISTS

    def words(self, slot):
        """What a slot is drawn from."""
        if slot == "n":
            return self.numbers
        if slot in ("petname", "town", "country"):
            return [made_up_name(self.rng)] if self.rng.random() < self.rare else BEAST_NAMES if slot == "petname" else LISTS[slot]
        return OPEN[slot] if slot in OPEN and self.rng.random() < self.rare else LISTS[slot]

    def pronoun(self, slot):
        """he, Bhis, Tshe ...: of A unless another letter comes first."""
        found = re.fullmatch(r"([BTJ]?)(s?[Hh]e|[Hh]is|[Hh]im|[Hh]imself)", slot)
        if not found:
            return None
        who, word = found.group(1) or "A", found.group(2)
        if who == "J":
            return "He"
        table = {"he": "she", "his": "her", "him": "her", "himself": "herself"} if self.girl[who] else {}
        said = table.get(word.lower(), word.lower()) if word != "she" else ("She" if self.girl[who] else "He")
        return capital(said) if word[0] == "H" else said

    def value(self, slot, number):
        said = self.pronoun(slot)
        if said:
            return said
        key = slot + number
        if key not in self.put:
            if slot in ("A", "B", "C", "F", "M", "T"):
                self.put[key] = self.name(slot)
            else:
                self.put[key] = self.fresh(self.words(slot))
        return self.put[key]

    def fill(self, text):
        def put(match):
            article, slot, number = match.groups()
            if slot + number in self.listed(): # food1 is a list of its own, food2 the second of food
                slot, number = slot + number, ""
            word = self.value(slot, number)
            plural = slot == "food" or " " in word and word.split()[0] in ("a", "an", "some", "the")
            if not article or plural:
                return capital(word) if article == "Aa:" else word
            return capital(a(word)) if article == "Aa:" else a(word)
        return SLOT.sub(put, text)


def read(name):
    """[(text, [(question, answer)], [summary])] of a file."""
    lines = []
    for line in read_lines(name):
        body, _, sums = line.partition(" == ")
        text, _, asks = body.partition(" || ")
        pairs = [tuple(ask.split(" > ")) for ask in asks.split(" ;; ")]
        assert all(len(pair) == 2 for pair in pairs), line
        lines.append((text, pairs, sums.split(" | ") if sums else []))
    return lines


SCENES, PASSAGES = read("scenes.txt"), read("passages.txt")


def play(line, rng, taken=()):
    """One line as (text, [(question, answer)], [summary], what was used)."""
    cast = Cast(rng, taken)
    text, pairs, sums = line
    said = cast.fill(one_way(text, rng)).strip()
    asks = [(capital(cast.fill(q)), capital(cast.fill(answer)) + ".") for q, answer in pairs]
    return said, asks, [cast.fill(s) for s in sums], cast.taken


def settled(asks):
    """Only questions that have one answer."""
    answers = {}
    for q, answer in asks:
        answers.setdefault(q, set()).add(answer)
    return [(q, next(iter(some))) for q, some in answers.items() if len(some) == 1]


def scene_passage(rng):
    """(passage, [(question, answer)], None): one to six lines about different people, in any order."""
    said, asks, taken = [], [], set()
    for line in rng.sample(SCENES, rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6))):
        text, more, _, used = play(line, rng, taken)
        taken |= used
        said.append(text)
        asks += more
    names = GIRLS + BOYS + MORE_GIRLS + MORE_BOYS
    if len(said) > 1: # "Who won?" is asked only where one line could answer it
        asks = [(q, answer) for q, answer in asks if answer[0].isdigit() or
                any(w in names or w in taken for w in re.findall(r"[A-Za-z]+", q)) or any(t in q for t in taken if len(t) > 3)]
    asks = settled(asks)
    rng.shuffle(asks)
    return rng.choice((" ", " ", " ", "\n", "\n\n")).join(said), asks, None


def whole_passage(rng):
    """(passage, [(question, answer)], summary or None): one that belongs together, now and then with a scene after it."""
    text, asks, sums, taken = play(rng.choice(PASSAGES), rng)
    if rng.random() < 0.15:
        more, others, _, _ = play(rng.choice(SCENES), rng, taken)
        text, asks = f"{text} {more}", asks + others
    if rng.random() < 0.2:
        parts = re.split(r"(?<=[.!?]) ", text)
        cut = rng.randrange(1, len(parts)) if len(parts) > 1 else 1
        text = " ".join(parts[:cut]) + "\n\n" + " ".join(parts[cut:])
    asks = settled(asks)
    rng.shuffle(asks)
    return text, asks, rng.choice(sums) if sums else None
