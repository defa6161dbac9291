"""The package as a whole: that nothing of the library is forgotten, the wheel, the documentation, the types."""
import ast
import base64
import ctypes
import dataclasses
import glob
import hashlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import tern
from common import BUILD, ROOT, STORIES, has_memory, needs_numpy
from tern import _c as c, _results

# Public functions that the package does not call, and why.
LEFT_OUT = {
    "tern_cancel_is_requested": "who requests it knows",
    "tern_cancel_reset": "each call has a request of its own",
    "tern_status_name": "TernError.code has a word of its own for each",
    "tern_chat_add_image": "a list of messages has its images",
    "tern_file_write": "Python writes its own files",
    "tern_output_open": "Python writes its own files",
    "tern_output_write": "Python writes its own files",
    "tern_output_finish": "Python writes its own files",
    "tern_output_close": "Python writes its own files",
    "tern_model_open_begin": "for event loops; Model() is opened in a thread",
    "tern_model_open_poll": "for event loops",
    "tern_opening_close": "for event loops",
    **{"tern_embed_" + name: "for event loops; tern_embed waits" for name in "begin poll close".split()},
    "tern_generate": "the group's steps do the same, and many at once",
    "tern_generate_ids": "the group's steps do the same, and many at once",
    "tern_session_cuts_freely": "for caches of prefixes; a fork is right in any case",
    "tern_group_begin": "for event loops; a thread steps",
    "tern_group_poll": "for event loops; a thread steps",
    "tern_group_get_info": "for servers' schedulers; the group is the engine's own",
    "tern_answer_with_special": "with_special is good for all",
    "tern_chat_answer": "tern_chat_tokens and the group do it for many at once",
    "tern_chat_set_system": "a list of messages is changed as lists are",
    "tern_chat_cut": "a list of messages is changed as lists are",
    "tern_array_read": "numpy.load",
    "tern_array_write": "numpy.save",
    "tern_json_lines": "json.loads",
    "tern_data_inspect": "the command line's: tern data inspect",
    "tern_data_shape_name": "data_build returns counts of tokens",
    **{"tern_speech_" + name: "tern_speak in a thread of its own" for name in "open poll get_stats close".split()},
    "tern_transcriber_open_sound": "for event loops; a sound is transcribed in a call",
    "tern_sound_pcm16": "the wave module writes such files",
    "tern_sound_encode": "write_sound writes such files",
    "tern_sound_wav_header": "the wave module writes such files",
    "tern_train_plot": "the command line's: tern train plot",
}
# Members of structs that are set by nobody, and why.
MEMBERS_LEFT_OUT = {
    "tern_webgpu_desc": {"symbol": "for programs with Dawn linked in", "symbol_user": "with it"},
    "tern_speculation": {"draft": "a drafter of the caller's own would run in the engine's thread", "draft_user": "with it"},
    "tern_embed_params": {"n_tokens": "Model.tokenize tells", "was_cut": "Model.tokenize tells", "user": "callbacks have their own"},
    "tern_rerank_params": {"n_tokens": "Model.tokenize tells", "user": "callbacks have their own"},
    "tern_train_desc": {"comm": "for groups of processes", "user": "callbacks have their own"},
    "tern_data_tokenizer_desc": {"user": "callbacks have their own"}, "tern_data_build_desc": {"user": "callbacks have their own"},
    "tern_ternarize_desc": {"user": "callbacks have their own"},
    "tern_mine_desc": {"comm": "for groups of processes", "user": "callbacks have their own"},
    "tern_agent_desc": {"user": "callbacks have their own"},
    "tern_model_desc": {"user": "callbacks have their own", "on_release": "Python keeps the bytes as long as the model"}, "tern_convert_desc": {"user": "callbacks have their own"},
    "tern_imatrix_desc": {"user": "callbacks have their own"}, "tern_eval_desc": {"user": "callbacks have their own"},
    "tern_perplexity_desc": {"user": "callbacks have their own"},
    "tern_sound_desc": {}, "tern_transcribe_params": {"user": "callbacks have their own"},
    "tern_speak_params": {"user": "callbacks have their own"},
    "tern_image_desc": {}, "tern_image_tokens_params": {}, "tern_classify_params": {"scores": "labels have theirs", "user": "callbacks have their own"},
    "tern_memory_desc": {}, "tern_memory_add_params": {"user": "callbacks have their own"},
    "tern_datagen_desc": {"user": "callbacks have their own"},
    "tern_inspect_desc": {}, "tern_session_desc": {}, "tern_generate_params": {"fork_at": "for caches of prefixes"}, "tern_sampling": {"has_defaults": "tern_sampling_default sets it"}, "tern_lora": {},
    "tern_compute_desc": {}, "tern_diagnose_desc": {}, "tern_grammar_desc": {"n_bytes": "texts have no zero in them", "otherwise": "what answers tools and a form is the server", "n_bytes_max": "the usual one will do"},
}


def sources():
    """The package's own text, without the declarations."""
    for path in sorted(glob.glob(os.path.join(ROOT, "bindings/python/tern/*.py"))):
        with open(path, encoding="utf-8") as file:
            yield path, file.read()


class Whole(unittest.TestCase):
    def test_every_function_is_called_or_left_out(self):
        """Seen to fail: with a function more in a header, with a call taken out, with a name in LEFT_OUT that
        is called, with one that is none."""
        called = {node.attr for _, text in sources() for node in ast.walk(ast.parse(text))
                  if isinstance(node, ast.Attribute) and node.attr.startswith("tern_")}
        called |= {name for _, text in sources() for name in re.findall(r"self\.(tern_\w*version)\(", text)}
        functions = set(c.FUNCTIONS)
        self.assertEqual(functions - called, set(LEFT_OUT))

    def test_every_member_is_set_or_left_out(self):
        """Seen to fail: with n_keep left out of session_desc."""
        text = "".join(text for _, text in sources())
        text += " ".join(f.name for f in dataclasses.fields(tern.Speculation))
        words = set(re.findall(r"\w+", text))
        descs = {name for name in vars(c) if re.fullmatch(r"tern_\w+_(desc|params)", name) and re.search(r"\b%s\b" % name, text)}
        self.assertEqual(descs - set(MEMBERS_LEFT_OUT) - {"tern_group_desc", "tern_group_info"}, set())
        for name, left_out in MEMBERS_LEFT_OUT.items():
            members = {member for member, _ in getattr(c, name)._fields_}
            self.assertEqual(set(left_out) - members, set(), name)
            self.assertEqual({m for m in members if m not in words}, {m for m in left_out if m not in words}, name)

    def test_train_has_an_option_for_every_member(self):
        """Seen to fail: with freeze taken out of TrainOptions; with a member more in the header."""
        from tern._training import CHOICES, MEMBERS, TrainOptions, _desc
        mine = {MEMBERS.get(name, name): name for name in TrainOptions.__annotations__}
        others = {"data", "out", "on_begin", "on_event", "on_step", "n_sizes", "comm", "user"}
        kinds = dict(c.tern_train_desc._fields_)
        self.assertEqual(set(kinds) - others, set(mine))
        for member, name in mine.items():
            value = {"sizes": [64], "webgpu": tern.WebGpu(), "pooling": "last"}.get(name)
            if value is None:
                value = (CHOICES[name][1][0] if name in CHOICES else "x" if kinds[member] is ctypes.c_char_p
                         else True if kinds[member] is ctypes.c_bool else 0.25 if kinds[member] in (ctypes.c_float, ctypes.c_double) else 3)
            self.assertTrue(getattr(_desc({name: value}), member), name)

    def test_results_have_the_structs_members(self):
        for kind, struct, but in (
                (tern.ModelInfo, c.tern_model_info, {}), (tern.DeviceMemory, c.tern_device_memory, {}),
                (tern.TrainEvent, c.tern_train_event, {}), (tern.TrainMemory, c.tern_train_memory, {}),
                (tern.TrainPlan, c.tern_train_info, {}), (tern.Perplexity, c.tern_perplexity, {}), (tern.Heap, c.tern_heap, {}), (tern.MineStats, c.tern_mine_stats, {}),
                (tern.ImatrixStats, c.tern_imatrix_stats, {}), (tern.DatagenStats, c.tern_datagen_stats, {}),
                (tern.MemoryHit, c.tern_memory_hit, {"n_bytes"}), (tern.MemoryRecord, c.tern_memory_record, {}),
                (tern.MemoryStats, c.tern_memory_info, {}), (tern.MemoryAdded, c.tern_memory_added, {}), (tern.MachineLimits, c.tern_machine_limits, {}),
                (tern.ProfileRow, c.tern_profile_row, {}), (tern.DraftLimits, c.tern_draft_limits, {}), (tern.ChoiceResult, c.tern_eval_result, {"n_metrics"}),
                (tern.EmbeddingInfo, c.tern_embedding_info, {"n_prompts"})):
            mine = {f.name for f in dataclasses.fields(kind)}
            self.assertEqual(mine, {name for name, _ in struct._fields_} - set(but), kind)

    def test_everything_public_says_what_it_is(self):
        for name in tern.__all__:
            self.assertTrue(hasattr(tern, name), name)
        plain = {kind for _, kind in inspect.getmembers(_results, inspect.isclass)}
        for name in tern.__all__:
            thing = getattr(tern, name)
            if thing in plain or not callable(thing):
                continue
            self.assertTrue(inspect.getdoc(thing), name)
            for member, function in inspect.getmembers(thing):
                if not member.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)) \
                        and thing.__module__.startswith("tern"):
                    if member not in ("close", "save", "version"):
                        self.assertTrue(inspect.getdoc(function), "%s.%s" % (name, member))

    @unittest.skipUnless(os.environ.get("TERN_TEST_TYPES"), "make python-types has the types")
    def test_types(self):
        """Seen to fail: with a wrong type in an option's place, with sequences where arrays may be, with plain texts
        where there are a few names."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "use.py"), "w") as file:
                file.write("import tern\nmodel = tern.Model('m.gguf')\nfor piece in model.chat('x', seed=3): piece.upper()\n"
                           "model.generate('x', seed='3')\nmodel.generate('x', sed=3)\n1 + model.chat('x').text\n"
                           "tern.Model('m.gguf', kv='f8')\nmodel.chat('x', tool_choice='always')\ntern.train('d', 'o', recipe='x')\n"
                           "if model.chat('x').reason == 'over': pass\n"
                           "import array\nmodel.generate(array.array('i', [1]), stop_token_ids=range(3), grammar={'type': 'integer'})\n"
                           "talk: list[tern.Message] = [{'role': 'user', 'content': [{'type': 'text', 'text': 'x'}]}]\n"
                           "talk.append(model.chat(talk, tools=[{'type': 'function'}], tool_choice={'function': {'name': 'f'}}).message)\n"
                           "tern.Model('m.gguf', loras='a')\ntern.Model('m.gguf', loras=['a', ('b', 0.5), tern.Lora('c')])\n"
                           "async def read() -> str:\n    async for piece in model.chat('x'): piece.upper()\n"
                           "    return (await model.generate('x')).text\n"
                           "try: pass\nexcept tern.TernFileNotFoundError as e: (e.code.upper(), e.errno)\n"
                           "tern.train('d', 'o', steps=3, on_step=lambda e: e.step < 2)\n")
            done = subprocess.run(["mypy", "--strict", "--enable-incomplete-feature=Unpack", "--cache-dir", os.path.join(BUILD, "python/.mypy"),
                                   "--no-error-summary", "-p", "tern", "-m", "use"], capture_output=True, text=True,
                                  env=dict(os.environ, MYPYPATH=os.path.join(BUILD, "python") + os.pathsep + folder))
        wrong = re.findall(r"use\.py:(\d+): error", done.stdout)
        self.assertEqual((wrong, done.stdout.count(": error")), (list("456789") + ["10"], 7), done.stdout + done.stderr)


class Wheel(unittest.TestCase):
    def test_the_wheel(self):
        """As pip reads it. Seen to fail: with a file left out of RECORD, and with a wrong tag."""
        (path,) = glob.glob(os.path.join(BUILD, "python/*.whl"))
        name, version, python_tag, abi, platform = os.path.basename(path)[:-4].split("-")
        self.assertEqual((name, version, python_tag, abi), ("tern_engine", tern.__version__, "py3", "none"))
        with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(wheel.testzip())
            notes = "%s-%s.dist-info/" % (name, version)
            record = [row.split(",") for row in wheel.read(notes + "RECORD").decode().splitlines()]
            self.assertEqual([row[0] for row in record], wheel.namelist())
            for file, digest, size in record[:-1]:
                data = wheel.read(file)
                want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, int(size)), ("sha256=" + want, len(data)))
            self.assertIn("Tag: py3-none-" + platform, wheel.read(notes + "WHEEL").decode())
            for needed in ("tern/__init__.py", "tern/_c.py", "tern/py.typed", "tern/libtern.so", notes + "LICENSE", notes + "METADATA"):
                self.assertIn(needed, wheel.namelist())
            if platform.startswith("manylinux"):  # it asks for nothing newer than it says, and for nothing else
                versions = re.findall(rb"GLIBC_(\d+)\.(\d+)\0", wheel.read("tern/libtern.so"))
                self.assertEqual(max((int(a), int(b)) for a, b in versions), tuple(map(int, platform.split("_")[1:3])))
            if importlib.util.find_spec("pip"):
                subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile",
                                "--disable-pip-version-check", "--root-user-action=ignore", "--target", folder, path], check=True)
            else:
                wheel.extractall(folder)
            env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "TERN_LIBRARY")}
            code = "import sys; sys.path.insert(0, sys.argv[1]); import tern\nassert tern.__file__.startswith(sys.argv[1])\n" \
                "with tern.Model(sys.argv[2]) as m: print(len(m.generate('Once', max_tokens=5).ids))"
            done = subprocess.run([sys.executable, "-c", code, folder, STORIES], capture_output=True, text=True, env=env)
            self.assertEqual((done.stdout, done.stderr), ("5\n", ""))

    def test_another_version_is_refused(self):
        """Seen to fail: without the comparison, with one of the versions alone."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(BUILD, "python/tern"), os.path.join(folder, "tern"))
            path = os.path.join(folder, "tern/_c.py")
            with open(path) as file:
                text = file.read()
            env = dict(os.environ, PYTHONPATH=folder)
            for name, more, says in (("MINOR", {}, "this package is for 0.9"), ("ABI", {}, "(ABI 9"),
                                     ("MINOR", {"TERN_LIBRARY": "/no/lib.so"}, "/no/lib.so"),
                                     ("MINOR", {"TERN_LIBRARY": ctypes.util.find_library("c") or "libc.so.6"}, "has no tern_version")):
                with open(path, "w") as file:
                    file.write(re.sub("TERN_(VERSION_%s|%s_VERSION) = " % (name, name), r"\g<0>9", text))
                done = subprocess.run([sys.executable, "-c", "import tern"], capture_output=True, text=True, env=dict(env, **more))
                self.assertIn("ImportError: tern: ", done.stderr)
                self.assertIn(says, done.stderr)


class Documentation(unittest.TestCase):
    @needs_numpy
    def test_the_examples_run(self):
        """Every ```python block of the pages, as it stands, in a folder with the files that they name."""
        for page in ("docs/python.md", "bindings/python/README.md"):
            with open(os.path.join(ROOT, page), encoding="utf-8") as file:
                blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
            self.assertGreaterEqual(len(blocks), 1, page)
            blocks = [block for block in blocks if "MemoryStore" not in block or has_memory()]
            with tempfile.TemporaryDirectory() as folder:
                os.symlink(STORIES, os.path.join(folder, "model.gguf"))
                os.symlink(os.path.join(ROOT, "models"), os.path.join(folder, "models"))
                subprocess.run([sys.executable, os.path.join(ROOT, "tests/parrot.py"), os.path.join(folder, "tools.gguf")], check=True)
                tern.convert(os.path.join(ROOT, "tests/oracles/embeddinggemma"), os.path.join(folder, "embedding"))
                shutil.copy(os.path.join(ROOT, "tests/oracles/small_tokenizer.json"), os.path.join(folder, "embedding/tokenizer.json"))
                os.symlink(os.path.join(ROOT, "models/chain-buckets.bin"), os.path.join(folder, "chain-buckets.bin"))
                os.symlink(os.path.join(ROOT, "tests/oracles/bert_ranker"), os.path.join(folder, "reranker"))
                with open(os.path.join(folder, "text.txt"), "w") as text:
                    text.write("Once upon a time there was a cat. " * 200)
                # Each in a namespace of its own; what they say is parted by a line.
                code = "import json, sys\nfor block in json.load(sys.stdin):\n    exec(block, {})\n    print('\\n----')"
                done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=600,
                                      input=json.dumps(blocks))
                self.assertEqual((done.returncode, done.stderr), (0, ""), page)
                said = done.stdout.split("\n----\n")
                self.assertEqual(len(said), len(blocks) + 1)
                for block, text in zip(blocks, said):
                    self.assertTrue(text.strip() or "print" not in block, block)
