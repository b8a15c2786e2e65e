"""lm_eval: log-likelihoods of choices through completions with the server's own tokenizer, answers
of chats. It streams nothing and calls no tools; instead an answer is held to a schema. The presets
of eval/presets/ for this harness name its version and tasks that it has."""
import importlib.metadata
import json
import pathlib
import tempfile

from client_run import MODEL, RESPONSE_FORMAT, SUM, check_person, main  # first: no network

import lm_eval
from lm_eval.tasks import TaskManager

ROWS = [{"question": SUM, "choices": ["46", "47"], "answer": "46", "label": 0}]
COMMON = {"dataset_path": "json", "test_split": "test", "output_type": "generate_until",
          "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}"}
TASKS = {
    "choices": {"output_type": "multiple_choice", "doc_to_choice": "choices",
                "doc_to_target": "label", "metric_list": [{"metric": "acc"}]},
    "sums": {"generation_kwargs": {"until": ["###"], "temperature": 0, "max_gen_toks": 200},
             "metric_list": [{"metric": "exact_match"}]},
    "persons": {"generation_kwargs": {"until": ["###"], "temperature": 0, "max_gen_toks": 200,
                                      "response_format": RESPONSE_FORMAT},
                "metric_list": [{"metric": "exact_match"}]},
}


def evaluate(model, task, **arguments):
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        (folder / "rows.json").write_text(json.dumps(ROWS))
        files = {"data_files": {"test": str(folder / "rows.json")},
                 "cache_dir": str(folder / "cache")}
        (folder / "task.yaml").write_text(  # JSON is YAML too
            json.dumps({**COMMON, **TASKS[task], "task": task, "dataset_kwargs": files}))
        return lm_eval.simple_evaluate(
            model=model, model_args={"model": MODEL, **arguments}, tasks=[task], log_samples=True,
            task_manager=TaskManager(include_path=work, include_defaults=False),
            apply_chat_template="chat" in model, bootstrap_iters=0)


def choices_by_likelihood(url):
    result = evaluate("local-completions", "choices", base_url=url + "/v1/completions",
                      tokenizer_backend="remote")
    responses = result["samples"]["choices"][0]["filtered_resps"]
    assert len(responses) == 2 and all(float(r[0]) < 0 for r in responses), responses


def chat_answers(url):
    result = evaluate("local-chat-completions", "sums", base_url=url + "/v1/chat/completions")
    assert result["results"]["sums"]["exact_match,none"] == 1, result["samples"]


def structured(url):
    result = evaluate("local-chat-completions", "persons", base_url=url + "/v1/chat/completions")
    check_person(json.loads(result["samples"]["persons"][0]["resps"][0][0]))


def presets_exist(url):
    folder = pathlib.Path(__file__).resolve().parents[2] / "eval" / "presets"
    presets = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    ours = [each for each in presets if each["harness"] == "lm-evaluation-harness"]
    known = TaskManager().all_tasks
    assert len(presets) == 8 and len(ours) >= 3, presets
    for preset in ours:
        assert preset["version"] == importlib.metadata.version("lm_eval"), preset
        assert preset["task"] in known, preset["task"]
        assert f"--tasks {preset['task']} " in preset["command"], preset["command"]
        assert preset["status"] == "not run here", preset["status"]


main(choices_by_likelihood, chat_answers, structured, presets_exist)
