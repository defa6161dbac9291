#!/usr/bin/env python3
"""Chats with tools, drawn by a seed, and what a small base can read before it is tuned on them.

    chats.py OUT [--chats 500] [--held-out 100] [--pairs 300] [--records 30000] [--seed 1]

    chats.jsonl, held-out.jsonl     requests, the right call of one of four tools, often its result and an answer
    pairs.jsonl, held-out-pairs.jsonl   the right call and one with another argument or tool, for preferences
    requests.jsonl                  the requests of held-out.jsonl, and the calls that are right
    records.txt                     sentences and the same facts as JSON: plain text for the base

No request is in two of the files.
"""
import argparse, json, os, random

CITIES = ("Oslo Paris Rome Madrid Vienna Prague Berlin Lisbon Athens Dublin Warsaw Helsinki Cairo Tokyo Delhi Lima "
          "Boston Chicago Seattle Toronto Sydney Perth Nairobi Lagos").split()
NAMES = "Anna Ben Clara David Emma Frank Grace Henry Ida Jack Kate Leo Mary Noah Olga Paul Rosa Sam Tina Victor".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
EVENTS = "lunch dinner training piano chess dentist meeting picnic concert haircut".split()
WORDS = "house river bread window garden winter friend mountain letter bridge candle apple horse school".split()
LANGUAGES = "French German Spanish Italian Dutch Polish".split()
MONEY = "dollars euros pounds francs crowns".split()
STYLES = "jazz folk rock blues opera swing".split()


def time(r):
    return "%d:%s" % (r.randint(6, 22), r.choice(("00", "15", "30", "45")))


def number(r):
    return r.randint(2, 99)


# Of each tool: what it does; its arguments, and how they are drawn; requests; a result, and what is said of it.
TOOLS = {
    "get_weather": ("the weather of a day", {"city": CITIES, "day": DAYS},
                    ["What is the weather in {city} on {day}?", "Will it rain in {city} on {day}?",
                     "I travel to {city} on {day}. Do I need a coat?"],
                    {"degrees": number, "sky": ["clear", "rainy", "cloudy"]},
                    "It will be {sky} in {city} on {day}, with {degrees} degrees."),
    "multiply": ("the product of two numbers", {"a": number, "b": number},
                 ["What is {a} times {b}?", "Please multiply {a} by {b}.", "A box has {a} rows of {b} eggs. How many?"],
                 None, None),
    "add_event": ("a new entry of the calendar", {"title": EVENTS, "day": DAYS, "time": time},
                  ["Put {title} on {day} at {time} into my calendar.", "I have {title} on {day} at {time}, write it down.",
                   "Plan {title} for {time} on {day}."],
                  {"saved": ["yes"]}, "I have noted {title} for {day} at {time}."),
    "set_alarm": ("an alarm clock", {"time": time},
                  ["Wake me at {time}.", "I need to get up at {time}.", "Set an alarm for {time}, please."],
                  {"saved": ["yes"]}, "The alarm will ring at {time}."),
    "translate": ("a word in another language", {"word": WORDS, "language": LANGUAGES},
                  ["What is {word} in {language}?", "How do you say {word} in {language}?", "Translate {word} to {language}."],
                  None, None),
    "convert_money": ("an amount in another currency", {"amount": number, "source": MONEY, "target": MONEY},
                      ["How many {target} are {amount} {source}?", "Change {amount} {source} to {target}.",
                       "I have {amount} {source}. What is that in {target}?"],
                      {"amount": number}, None),
    "find_train": ("trains between two cities", {"start": CITIES, "goal": CITIES},
                   ["How do I get from {start} to {goal}?", "Is there a train to {goal} from {start}?",
                    "I am in {start} and must be in {goal} tonight."],
                   {"leaves": time}, "A train from {start} to {goal} leaves at {leaves}."),
    "send_message": ("a message to a friend", {"name": NAMES, "day": DAYS, "time": time},
                     ["Tell {name} that I come on {day} at {time}.", "Let {name} know: {day}, {time}.",
                      "Write to {name} that we meet at {time} on {day}."],
                     {"sent": ["yes"]}, "I have told {name}."),
    "play_music": ("music of a style for some minutes", {"style": STYLES, "minutes": number},
                   ["Play {style} for {minutes} minutes.", "I want to hear {minutes} minutes of {style}.",
                    "Some {style} for the next {minutes} minutes, please."],
                   {"playing": ["yes"]}, "Here are {minutes} minutes of {style}."),
}


def draw(r, how):
    return how(r) if callable(how) else r.choice(how)


def draw_all(r, arguments):
    """No two arguments are equal: from Oslo to Oslo is no question."""
    while True:
        values = {name: draw(r, how) for name, how in arguments.items()}
        if len(set(values.values())) == len(values):
            return values


def schema(name):
    what, arguments = TOOLS[name][:2]
    kinds = {a: {"type": "integer" if how is number else "string"} for a, how in arguments.items()}
    parameters = {"type": "object", "properties": kinds, "required": list(kinds)}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": parameters}}


def call(name, values):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": name, "arguments": json.dumps(values)}}]}


def request(r, seen):
    """A request that was not drawn before, its tools, and the right call."""
    while True:
        name = r.choice(list(TOOLS))
        values = draw_all(r, TOOLS[name][1])
        text = r.choice(TOOLS[name][2]).format(**values)
        if text not in seen:
            break
    seen.add(text)
    offered = [name] + r.sample([t for t in TOOLS if t != name], 3)
    r.shuffle(offered)
    return text, offered, name, values


def chat(r, seen):
    text, offered, name, values = request(r, seen)
    messages = [{"role": "user", "content": text}, call(name, values)]
    results, answer = TOOLS[name][3:]
    if answer and r.random() < 0.5:
        found = {k: draw(r, how) for k, how in results.items()}
        messages.append({"role": "tool", "content": json.dumps(found)})
        messages.append({"role": "assistant", "content": answer.format(**values, **found)})
    return {"messages": messages, "tools": [schema(t) for t in offered]}, (name, values)


def pair(r, seen):
    text, offered, name, values = request(r, seen)
    other, wrong = name, dict(values)
    if r.random() < 0.5:
        other = r.choice([t for t in offered if t != name])
        wrong = draw_all(r, TOOLS[other][1])
    else:
        argument = r.choice(list(values))
        while wrong[argument] == values[argument]:
            wrong[argument] = draw(r, TOOLS[name][1][argument])
    return {"prompt": [{"role": "user", "content": text}], "chosen": [call(name, values)],
            "rejected": [call(other, wrong)], "tools": [schema(t) for t in offered]}


def record(r):
    """Names and values of several tools in a sentence, then as JSON: what is to be copied is in front."""
    kinds = {}
    for name in r.sample(list(TOOLS), 2):
        kinds.update(TOOLS[name][1])
    names = r.sample(list(kinds), r.randint(1, min(4, len(kinds))))
    values = {name: draw(r, kinds[name]) for name in names}
    order = r.sample(names, len(names))
    lead = r.choice(("%s wrote: " % r.choice(NAMES), "Note. ", "It is known that ", ""))
    text = lead + ", ".join(r.choice(("the %s is %s", "%s: %s", "as %s %s")) % (n, values[n]) for n in order)
    return text + ".\n" + json.dumps(values) + "\n"


def write_lines(path, items):
    with open(path, "w") as f:
        for item in items:
            print(json.dumps(item), file=f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    for name, default in (("chats", 500), ("held-out", 100), ("pairs", 300), ("records", 30000), ("seed", 1)):
        p.add_argument("--" + name, type=int, default=default)
    a = p.parse_args()
    r, seen = random.Random(a.seed), set()
    os.makedirs(a.out, exist_ok=True)
    at = lambda name: os.path.join(a.out, name)
    write_lines(at("chats.jsonl"), [chat(r, seen)[0] for _ in range(a.chats)])
    held_out = [chat(r, seen) for _ in range(a.held_out)]
    write_lines(at("held-out.jsonl"), [c for c, _ in held_out])
    write_lines(at("requests.jsonl"), [{"messages": c["messages"][:1], "tools": c["tools"], "name": name,
                                        "arguments": values} for c, (name, values) in held_out])
    write_lines(at("pairs.jsonl"), [pair(r, seen) for _ in range(a.pairs)])
    write_lines(at("held-out-pairs.jsonl"), [pair(r, seen) for _ in range(a.held_out)])
    with open(at("records.txt"), "w") as f:
        f.write("<|endoftext|>".join("".join(record(r) for _ in range(10)) for _ in range(a.records // 10)))


if __name__ == "__main__":
    main()
