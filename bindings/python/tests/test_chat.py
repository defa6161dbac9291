"""Conversations: tools, parts, and answers in OpenAI's shape."""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import tern
from common import PARROT, STORIES

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"town": {"type": "string"}}}}}, {"type": "function", "function": {"name": "clock"}}]
ASK = [{"role": "user", "content": "Rain in Ghent?"}]
CALLS = [("weather", '{"town": "Ghent"}'), ("clock", "{}")]


class Conversations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        path = os.path.join(cls.folder, "tools.gguf")
        subprocess.run([sys.executable, PARROT, path], check=True)
        cls.model = tern.Model(path, threads=1)

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        shutil.rmtree(cls.folder)

    def test_tools(self):
        """Seen to fail: chat() took no tools."""
        with self.model.session() as session:
            for where in (self.model, session):
                answer = where.chat(ASK, tools=TOOLS)
                self.assertEqual("".join(answer), "I look.")
                self.assertEqual((answer.text, answer.reasoning, answer.finish_reason), ("I look.", "Rain?", "tool_calls"))
                self.assertEqual([(c["function"]["name"], c["function"]["arguments"]) for c in answer.tool_calls], CALLS)
                self.assertEqual(len({c["id"] for c in answer.tool_calls}), 2)
                kinds = [part.kind for part in answer.parts()]
                self.assertEqual((kinds[0], kinds[-1], kinds.count("call")), ("reasoning", "call_end", 2))
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "dry"} for c in answer.tool_calls]
        after = self.model.chat(ASK + [answer.message] + results, tools=TOOLS)
        self.assertEqual((after.text, after.tool_calls, after.finish_reason), ("It is dry in Ghent.", [], "stop"))
        self.assertEqual(after.message, {"role": "assistant", "content": after.text})

    def test_old_turns_make_way_beside_tools(self):
        """Seen to fail: with tools, what was too long was refused."""
        long = [{"role": "user", "content": "Rain? " * 40}, {"role": "assistant", "content": "", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "noon " * 40}, {"role": "assistant", "content": "It is noon."}]
        with self.model.session(context=self.model.count_tokens(ASK) + 200) as session:
            answer = session.chat([{"role": "system", "content": "Short."}] + long * 3 + ASK, tools=TOOLS, max_tokens=60)
            self.assertGreater(answer.dropped, 0)
            self.assertEqual(answer.dropped % 4, 0)  # whole turns
            self.assertTrue(answer.text.startswith("I look."), answer.text)
            with self.assertRaises(tern.TernError) as caught:
                session.chat([{"role": "user", "content": "Rain? " * 3000}], tools=TOOLS)
        self.assertEqual(caught.exception.code, "context")

    def test_agents(self):
        """Seen to fail: with a tool's exception that ends the run, with arguments that are a text."""
        asked, events = [], []

        def weather(town: str = "") -> str:
            """Says what the weather is like.

            In a town."""
            asked.append(town)
            return "dry"

        def clock():
            raise ValueError("it stands still")

        with tern.Agent(self.model, [weather, {"name": "clock", "run": clock}], on_event=events.append, temperature=0) as agent:
            result = agent.run(ASK[0]["content"])
            self.assertEqual((str(result), result.end, result.n_calls, result.n_failed),
                             ("It is dry in Ghent.", "finished", 2, 1))
            self.assertEqual(asked, ["Ghent"])
            results = [e for e in events if e.kind == "result"]
            self.assertEqual([(e.call, e.text, e.failed) for e in results],
                             [("weather", "dry", False), ("clock", "ValueError: it stands still", True)])
            roles = [m["role"] for m in agent.messages]
            self.assertEqual(roles, ["user", "assistant", "tool", "tool", "assistant"])
        with tern.Agent(self.model, [weather, clock], max_steps=1, temperature=0) as agent:
            self.assertEqual(agent.run(ASK[0]["content"]).end, "steps")
        with tern.Agent(self.model, [weather, clock], on_event=lambda e: e.kind != "call", temperature=0) as agent:
            self.assertEqual(agent.run(ASK[0]["content"]).end, "stopped")

        def leave():
            raise KeyboardInterrupt

        with tern.Agent(self.model, [tern.Tool(leave, "clock"), weather], temperature=0) as agent:
            with self.assertRaises(KeyboardInterrupt):
                agent.run(ASK[0]["content"])
        for wrong in (5, {"name": "f"}, lambda *rest: 1):
            with self.assertRaises(tern.TernError):
                tern.Agent(self.model, [wrong])

    def test_a_choice_of_tools(self):
        answer = self.model.chat(ASK, tools=TOOLS, tool_choice="none")
        self.assertEqual((answer.text, answer.tool_calls), ("Good day.", []))
        named = {"type": "function", "function": {"name": "clock"}}
        answer = self.model.chat(ASK, tools=TOOLS, tool_choice=named, max_tokens=200)
        self.assertEqual([c["function"]["name"] for c in answer.tool_calls], ["clock"])
        self.assertTrue(self.model.chat(ASK, tools=TOOLS, tool_choice="required", max_tokens=200).tool_calls)
        for wrong in ("always", {"function": "clock"}, 5):
            with self.assertRaisesRegex(tern.TernError, "tool_choice"):
                self.model.chat(ASK, tools=TOOLS, tool_choice=wrong)
        with self.assertRaises(tern.TernError):
            self.model.chat(ASK, tools=[object()])

    def test_an_answer_that_is_cut(self):
        """A call that has no end is none. Seen to fail: with every part of a call taken for one."""
        whole = self.model.chat(ASK, tools=TOOLS)
        for n in range(1, len(whole.ids)):
            answer = self.model.chat(ASK, tools=TOOLS, max_tokens=n)
            for call in answer.tool_calls:
                self.assertIn((call["function"]["name"], call["function"]["arguments"]), CALLS)
        with self.assertRaisesRegex(tern.TernError, "tools"):
            next(self.model.chat(ASK).parts())

    def test_contents_in_parts(self):
        """Seen to fail: a content was a text alone."""
        want = self.model.format(ASK)
        for content in ([{"type": "text", "text": "Rain in "}, {"type": "text", "text": "Ghent?"}], ["Rain in ", "Ghent?"],
                        [{"type": "input_text", "text": "Rain in Ghent?"}], ({"type": "text", "text": "Rain in Ghent?"},)):
            messages = [{"role": "user", "content": content}]
            self.assertEqual(self.model.format(messages), want)
            self.assertEqual(self.model.chat(messages).text, self.model.chat(ASK).text)
            self.assertEqual(self.model.count_tokens(messages), self.model.count_tokens(ASK))
        image = base64.b64encode(b"nothing").decode()
        for part, says in (({"type": "input_audio"}, "input_audio"), ({"type": "text"}, "part 0"), (5, "int"), ({}, "part 0"),
                           ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "not downloaded"),
                           ({"type": "image_url"}, "no url"), ({"type": "image_url", "image_url": "data:image/png;base64,%%"}, "part 0"),
                           ({"type": "image_url", "image_url": "data:image/png," + image}, "base64"),
                           ({"type": "image_url", "image_url": "data:image/png;base64," + image}, "no JPEG"),
                           ({"type": "image", "image": os.path.join(self.folder, "none.png")}, "none.png")):
            with self.assertRaisesRegex(tern.TernError, says, msg=part):
                self.model.chat([{"role": "user", "content": [part]}])

    def test_completions(self):
        """Seen to fail: there was no such method."""
        told = self.model.create_chat_completion(ASK, tools=TOOLS)
        self.assertEqual(told["object"], "chat.completion")
        (choice,) = told["choices"]
        self.assertEqual((choice["index"], choice["finish_reason"], choice["logprobs"]), (0, "tool_calls", None))
        self.assertEqual(choice["message"]["content"], "I look.")
        self.assertEqual([(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]], CALLS)
        self.assertEqual(told["usage"]["total_tokens"], told["usage"]["prompt_tokens"] + told["usage"]["completion_tokens"])
        json.dumps(told)
        chunks = list(self.model.create_chat_completion(ASK, tools=TOOLS, stream=True))
        json.dumps(chunks)
        self.assertEqual({c["object"] for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({c["id"] for c in chunks}), 1)
        deltas = [c["choices"][0]["delta"] for c in chunks]
        self.assertEqual("".join(d.get("content", "") for d in deltas), "I look.")
        self.assertEqual("".join(d.get("reasoning_content", "") for d in deltas), "Rain?")
        calls = {}
        for delta in deltas:
            for call in delta.get("tool_calls", ()):
                mine = calls.setdefault(call["index"], ["", ""])
                mine[0] += call["function"].get("name", "")
                mine[1] += call["function"]["arguments"]
        self.assertEqual([tuple(calls[i]) for i in (0, 1)], CALLS)
        self.assertEqual((chunks[-1]["choices"][0]["finish_reason"], chunks[-1]["usage"]), ("tool_calls", told["usage"]))

    def test_completions_with_options(self):
        """Seen to fail: with the response_format left out."""
        schema = {"type": "object", "properties": {"age": {"enum": [3, 4]}}, "required": ["age"], "additionalProperties": False}
        with tern.Model(STORIES, threads=1) as model:
            how = dict(max_completion_tokens=9, temperature=0)
            told = model.create_chat_completion("A story, please.", logprobs=True, top_logprobs=2, **how)
            want = model.chat("A story, please.", max_tokens=9, temperature=0)
            self.assertEqual((told["choices"][0]["message"]["content"], told["choices"][0]["finish_reason"]), (want.text, "length"))
            self.assertEqual([len(t["top_logprobs"]) for t in told["choices"][0]["logprobs"]["content"]], [2] * 9)
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            told = model.create_chat_completion("How old?", response_format=form)
            self.assertIn(json.loads(told["choices"][0]["message"]["content"])["age"], (3, 4))
            stream = model.create_chat_completion("A story, please.", stream=True, ignore_end=True)
            next(stream)
            stream.close()  # cancels it
            for wrong in ("xml", {"type": "json_schema"}):
                with self.assertRaisesRegex(tern.TernError, "response_format"):
                    model.create_chat_completion("x", response_format=wrong)
            with self.assertRaisesRegex(TypeError, "temprature"):
                model.create_chat_completion("x", temprature=1)
