#!/usr/bin/env python3
"""Tests of the recipe: what is found in a passage, what is made up, and the rules by which answers are judged."""
import os
import random
import re
import subprocess
import sys
import unittest

from corpus import held_out_requests
from fables import Fable, fable
from facts import each_fact, short_chats
from questions import gist, questions
from plots import plot
from scenes import LISTS, Cast, scene_passage, whole_passage
from events import event_passage
from leads import lead, short_passages
from pools import Pools, mined
from second import keeps_to, sums
from yarns import Yarn, yarn
from score import is_accepted, is_story, is_summary, repeats
from worlds import summary, world

PASSAGE = """In a small village there lived a young fox named Rufus. He loved to sing. One day, Rufus found a red kite in
the garden. "What a day!" said Rufus. His friend Ada had three apples. Rufus walked to the river with the kite.
Rufus was happy because the kite was his."""


class Passages(unittest.TestCase):
    def test_questions_have_the_answers_of_the_passage(self): # seen to fail: with the answers of "found" dropped
        asked = {}
        for seed in range(40):
            asked.update(questions(PASSAGE.replace("\n", " "), random.Random(seed)))
        self.assertEqual(asked["What did Rufus find?"], "A red kite.")
        self.assertEqual(asked["What is the fox called?"], "Rufus.")
        self.assertEqual(asked["How many apples are there?"], "Three.")
        self.assertEqual(asked["Where did Rufus live?"], "In a small village.")
        self.assertEqual(asked["What colour is the kite?"], "Red.")

    def test_a_question_with_two_answers_is_not_asked(self): # seen to fail: with `doubtful` ignored
        two = PASSAGE.replace("\n", " ") + " There was an old fox named Tom."
        for seed in range(20):
            self.assertNotIn("What is the fox called?", dict(questions(two, random.Random(seed))))

    def test_a_summary_names_the_hero_and_is_short(self): # seen to fail: with the hero's name left out
        first, _ = gist(PASSAGE.replace("\n", " "), random.Random(1))
        self.assertTrue(first.startswith("Rufus"), first)
        self.assertLess(len(first.split()), 25)


class Worlds(unittest.TestCase):
    def test_answers_stand_in_the_passage(self): # seen to fail: with an answer of another scene
        for seed in range(300):
            passage, known, (hero, deeds) = world(random.Random(seed))
            said = passage.lower()
            for question, answer in known:
                for word in answer.rstrip(".").lower().split():
                    self.assertTrue(word in said or word in ("a", "an", "his", "her", "on", "to"), f"{passage}\n{question} {answer}")
            self.assertIn(hero.split(",")[0], summary(hero, deeds, 1))

    def test_the_same_seed_makes_the_same_chats(self): # seen to fail: with names drawn from a set of strings
        code = "import chats; chats.N_WORLDS = chats.N_FABLES = chats.N_SHORT = 48 * 9; print(list(chats.made_up(4, set())))"
        made = {subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
                               cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True, check=True).stdout for seed in "12"}
        self.assertEqual(len(made), 1)

    def test_a_question_has_at_most_two_right_answers(self): # seen to fail: with "light rough" among the opposites
        answers = {}
        for wordings, answer in each_fact():
            for wording in wordings:
                answers.setdefault(wording, set()).add(answer)
        self.assertFalse([q for q, some in answers.items() if len(some) > 2])
        self.assertLess(sum(len(some) > 1 for some in answers.values()), 40)

    def test_what_is_asked_for_the_score_is_left_out(self): # seen to fail: with prompts.jsonl not read
        held_out = held_out_requests()
        self.assertGreaterEqual(len(held_out), 200)
        asked = lambda without: {q for turns in short_chats(3000, without, random.Random(1)) for q, _ in turns}
        self.assertTrue(held_out & asked(set()))
        self.assertFalse(held_out & asked(held_out))


class Scenes(unittest.TestCase):
    SAID_OTHERWISE = set("""yes no rainy sunny its because was were it he she they his her the a an to in on at of from by with and not did
        repair fix mend too who three two raining brother sister mother father""".split())

    def test_answers_stand_in_the_passage(self): # seen to fail: with an answer's slot drawn anew
        n, n_missing = 0, 0 # some say "walked" where the passage has "had to walk"
        for seed in range(150):
            for passage, known, brief in (scene_passage(random.Random(seed)), whole_passage(random.Random(seed))):
                said = passage.lower()
                self.assertNotRegex(passage + (brief or ""), r"[{}|]")
                for question, answer in known:
                    self.assertNotRegex(question + answer, r"[{}|]")
                    for word in answer.rstrip(".").lower().split():
                        word = word.strip(",").removesuffix("'s")
                        n, n_missing = n + 1, n_missing + (word not in said and word not in self.SAID_OTHERWISE)
        self.assertLess(n_missing, 0.01 * n)

    def test_a_list_whose_name_ends_with_a_number_is_its_own(self): # seen to fail: with {food1} drawn from the list of food
        cast = Cast(random.Random(1))
        self.assertIn(cast.fill("{food1}"), LISTS["food1"])
        self.assertNotEqual(cast.fill("{food}"), cast.fill("{food2}"))

    def test_names_are_an_open_class(self): # seen to fail: with names of the lists alone
        drawn = {Cast(random.Random(seed)).fill("{A}") for seed in range(1500)}
        self.assertGreater(len(drawn), 400)

    def test_a_story_has_what_its_request_says(self): # seen to fail: with the thing of the request drawn anew
        for seed in range(150):
            request, title, story = plot(random.Random(seed))
            self.assertNotRegex(request + title + story, r"[{}|]")
            found = re.search(r"who (?:loses|lost|finds|is looking for) an? (?:[a-z]+ )?([a-z]+)[.?]?$", request)
            if found and found.group(1) not in ("friend", "way"):
                self.assertIn(found.group(1), story)


class Fables(unittest.TestCase):
    def test_a_fable_has_what_was_asked_for(self): # seen to fail: with another thing in the request
        for seed in range(300):
            request, title, story, gist = fable(random.Random(seed))
            one = Fable(random.Random(seed))
            asked = [one.kind] + ([one.what] if one.what in request.split("story about")[-1].split("tale about")[-1] else [])
            self.assertTrue(all(w in request for w in asked), request)
            self.assertTrue(is_story({"names": asked}, story), f"{request}\n{story}")
            self.assertIn(one.name, gist(1))
            self.assertLess(len(gist(2).split()), 40)


class Requests(unittest.TestCase):
    def test_a_story_has_what_its_request_says(self): # seen to fail: with a thing drawn anew in the request
        kept = 0
        for seed in range(100):
            request, title, story = yarn(random.Random(seed))
            self.assertNotRegex(request + title + story, r"[{}|]")
            kept += keeps_to(request, story)
        self.assertGreater(kept, 60) # second.py leaves the others out

    def test_requests_have_many_wordings(self): # seen to fail: with one opening
        first = {" ".join(yarn(random.Random(seed))[0].split()[:3]).lower() for seed in range(100)}
        self.assertGreater(len(first), 40)

    def test_each_part_of_a_request_is_kept_to_the_end(self): # seen to fail: with nothing woven into the last paragraph
        for seed in range(70):
            one = Yarn(random.Random(seed), Pools())
            if "thing" in one.extras:
                self.assertIn(one.t, one.tell().split("\n\n")[-1])

    def test_nouns_and_names_are_found_in_texts(self): # seen to fail: with names that are written small, too
        text = "He saw a lantern. She took the lantern, and so did Ada. Then Ada and Will sang. A will is a will. "
        names, nouns = mined([text * 8])
        self.assertEqual((names, nouns), (["Ada"], ["lantern", "will"]))

    def test_little_sums_are_right(self): # seen to fail: with what is taken away added
        for seed in range(70):
            question, answer = sums(random.Random(seed))
            found = re.match(r"There are (\d+) \w+\. (\d+) (?:is|are) taken away", question)
            if found and answer.rstrip(".").isdigit():
                self.assertEqual(int(answer.rstrip(".")), int(found.group(1)) - int(found.group(2)))


class Events(unittest.TestCase):
    def test_answers_stand_in_the_passage(self): # seen to fail: with the answer of another sentence
        said_otherwise = {"because", "two", "with", "to", "she", "he", "a", "an", "the"}
        for seed in range(70):
            passage, known = event_passage(random.Random(seed))
            self.assertNotRegex(passage, r"[{}|]")
            for question, answer in known:
                self.assertNotRegex(question + answer, r"[{}|]")
                for word in answer.rstrip(".").lower().split():
                    word = word.strip(",").removesuffix("'s")
                    self.assertTrue(word in passage.lower() or word in said_otherwise, f"{passage}\n{question} {answer}")
            self.assertEqual(len({q for q, _ in known}), len(known))

    def test_the_lead_is_the_sentence_that_says_who_does_what(self): # seen to fail: with the first sentence, whatever it says
        passage = ("Once there was a hare named Otto. He lived in a field. One morning, Otto dug up a silver bell. It was full of earth. "
                   "He washed it in the river, and everybody in the village could hear how it rang.")
        self.assertEqual(lead(passage), "One morning, Otto dug up a silver bell.")
        self.assertIsNone(lead("Otto dug. He found it."))
        for part in short_passages(passage, random.Random(1), 3):
            self.assertIn(part[:20], passage)


class Rules(unittest.TestCase):
    def test_accepted_answers(self): # seen to fail: with articles counted
        one = {"accept": ["a red kite", "five"]}
        self.assertTrue(is_accepted(one, "The red kite."))
        self.assertTrue(is_accepted(one, "It is five"))
        self.assertFalse(is_accepted(one, "A red kite and a dog."))
        self.assertFalse(is_accepted(one, ""))

    def test_stories(self): # seen to fail: with the title counted
        one = {"names": ["fox", "key"]}
        self.assertTrue(is_story(one, "**The Fox**\n\nA fox had a key. The fox lost the key. " + "So it went. " * 20))
        self.assertFalse(is_story(one, "**The Fox and the Key**\n\nA fox had a key. The fox was sad. " + "So it went. " * 20))
        self.assertFalse(is_story(one, "A fox had a key. The fox lost the key."))

    def test_summaries(self): # seen to fail: without a bound on the words
        one = {"names": ["Rufus"], "keys": ["kite"], "words": 60}
        self.assertTrue(is_summary(one, "Rufus, a young fox, found a kite."))
        self.assertFalse(is_summary(one, "Rufus was a fox."))
        self.assertFalse(is_summary(one, "Rufus found a kite. " * 9))

    def test_loops(self): # seen to fail: with runs of sixty words
        self.assertTrue(repeats("and then he went to the sea " * 4))
        self.assertFalse(repeats("Count to five: one, two, three, four, five, six, seven."))


if __name__ == "__main__":
    unittest.main()
