# Sourced by ./test: the Python tests that need no torch. Uses step, beside, $python and build/test.
nibble=build/test/src/cli/nibble
rm -f "$besides"
# A release of huggingface_hub that goes on with half files, as the pinned one does not.
older_hub=build/huggingface_hub-0.36.2
make_older_hub() {
  [ -d "$older_hub" ] || .venv/bin/pip install --quiet --disable-pip-version-check \
    --target "$older_hub" huggingface_hub==0.36.2
}
must "an older huggingface_hub" make_older_hub
beside "tokenizer equals Hugging Face tokenizers" "$python" tools/oracle/tokenizer_test.py \
  build/test/src/text/nibble_tokenizer_tool build/cache
beside "chat templates equal Jinja2" "$python" tools/oracle/template_test.py \
  build/test/src/text/nibble_template_tool
beside "bad input at the command line" "$python" tests/cli/bad_input_test.py \
  --nibble "$nibble" --model pebble/model
beside "a real client of the server" "$python" tests/serve/serve_test.py \
  --nibble "$nibble" --model pebble/model
beside "drafts of the MTP layer change nothing" "$python" tests/serve/drafts_test.py \
  --nibble "$nibble" --model pebble/model
beside "published command lines of vLLM" "$python" tests/serve/published_lines_test.py \
  --nibble "$nibble" --model pebble/model
beside "clients of the other APIs" "$python" tests/serve/other_apis_test.py \
  --nibble "$nibble" --model pebble/model
beside "conversations as clients send them" "$python" tests/serve/conversations_test.py \
  --nibble "$nibble" --model pebble/model
beside "the server says what it said" "$python" tests/serve/transcripts_test.py \
  --nibble "$nibble" --model pebble/model
beside "metrics are well formed" "$python" tests/serve/metrics_format_test.py \
  --nibble "$nibble" --model pebble/model
beside "schemas are obeyed whole" "$python" tests/serve/schema_suite.py --table --outputs 30 \
  --tool build/test/src/server/nibble_grammar_tool
beside "what pydantic writes is taken" "$python" tests/serve/pydantic_types.py \
  --tool build/test/src/server/nibble_grammar_tool
beside "what may be asked of answers" "$python" tests/serve/answers_test.py \
  --nibble "$nibble" --model pebble/model
beside "models of the Hugging Face cache" "$python" tests/cli/hub_cache_test.py \
  --nibble "$nibble" --model pebble/model
beside "pull agrees with huggingface_hub" "$python" tests/hub/pull_test.py --nibble "$nibble" \
  --older "$older_hub"
beside "plans of models on the hub" "$python" tests/hub/plan_fetch_test.py --nibble "$nibble"
beside "ls, rm and show" "$python" tests/hub/cached_models_test.py --nibble "$nibble"
beside "push sends what was checked" "$python" tests/hub/push_test.py --nibble "$nibble"
beside "how clients are told of a server" "$python" tests/cli/connect_test.py \
  --nibble "$nibble" --model pebble/model
beside "plans are what is served and written" "$python" tests/cli/plan_test.py \
  --nibble "$nibble" --model pebble/model
beside "the sizes of tools/pebble" "$python" tests/cli/pebble_sizes_test.py \
  --nibble "$nibble" --model pebble/model
beside "what plan says and refuses" "$python" tests/cli/plan_words_test.py \
  --nibble "$nibble" --model pebble/model
beside "what doctor says of machines" "$python" tests/cli/doctor_test.py \
  --nibble "$nibble" --model pebble/model
beside "receipts of cards" "$python" tests/cli/receipt_test.py \
  --nibble "$nibble" --model pebble/model
beside "README and docs are what the program says" "$python" tests/docs/docs_test.py \
  --nibble "$nibble" --model pebble/model --only test_the_
beside "batches of requests" "$python" tests/cli/batch_test.py --nibble "$nibble" --model pebble/model
beside "eval: verdicts, intervals, going on" "$python" tests/cli/eval_test.py --nibble "$nibble" \
  --model pebble/model
beside "eval kv: formats of keys and values" "$python" tests/cli/eval_kv_test.py --nibble "$nibble" \
  --model pebble/model
beside "score: logits, figures, divergence" "$python" tests/cli/score_test.py --nibble "$nibble"
beside "sampler goldens are what the oracle gives" "$python" tools/oracle/sampler_golden.py --check
beside "rounding goldens are what numpy gives" "$python" tools/oracle/rounding_golden.py --check
beside "what verify measures and writes into a card" "$python" tests/cli/verify_test.py \
  --nibble "$nibble" --model pebble/model
beside "verify sees every corruption by its hash" "$python" tests/cli/verify_corruptions_test.py \
  --nibble "$nibble" --model pebble/model --only test_here
beside "what each recipe costs on Pebble" "$python" tests/cli/recipe_quality_test.py \
  --nibble "$nibble" --model pebble/model
beside "quantize writes what it wrote" "$python" tests/cli/quantized_figures_test.py \
  --nibble "$nibble" --model pebble/model
beside "quantize chooses formats under a budget" "$python" tests/cli/allocation_test.py \
  --nibble "$nibble" --model pebble/model
beside "quantize goes on after kills" "$python" tests/cli/crash_test.py --nibble "$nibble" \
  --model pebble/model
beside "weights and activations on a CPU" "$python" tests/cli/cpu_weights_test.py \
  --nibble "$nibble" --model pebble/model
beside "the bits that the CPU computes" "$python" tests/cli/bits_test.py --nibble "$nibble" \
  --model pebble/model
beside "the one table of options" "$python" tests/cli/options_test.py \
  --nibble "$nibble" --model pebble/model
beside "what bash completes" "$python" tests/cli/completion_test.py --nibble "$nibble" --shell bash
beside "targets of the CUDA code" tests/cuda_targets_test.sh "$nibble"
beside "the house rules see mistakes" "$python" tests/house_rules_test.py
beside "the words of ./test and ./quickstart" tests/test_options_test.sh
beside "the logic of --mutate" "$python" tests/mutation/changes_test.py
beside "draws of --mutate" "$python" tests/mutation/drawing_test.py
beside "trials of mutants" "$python" tests/mutation/trial_test.py
beside "mutants have a tree of sources" "$python" tests/mutation/workshop_test.py
beside "the simulation counts what it counted" tests/engine_counts_test.py \
  build/test/src/engine/nibble_engine_simulation
beside "runs of the simulation that go on" "$python" tests/mutation/simulate_test.py
beside "ten planted mistakes are seen" "$python" tools/mutate.py --planted build/test
beside "the chart is made of reports" "$python" tests/cli/bench_chart_test.py \
  --nibble "$nibble" --model pebble/model
beside "weight formats compared" "$python" tests/cli/bench_formats_test.py \
  --nibble "$nibble" --model pebble/model
beside "speed of a model, starts and quantizations" "$python" tests/cli/bench_local_test.py \
  --nibble "$nibble" --model pebble/model
settle
# What types, waits and sends signals wants the machine for itself.
step "costly structures are the concern of who asks" "$python" tests/serve/structures_test.py \
  --nibble "$nibble" --model pebble/model
step "images through the real clients" "$python" tests/serve/images_test.py \
  --nibble "$nibble" --model pebble/model
step "bits of prompts with images" "$python" tests/serve/image_bits_test.py \
  --nibble "$nibble" --model pebble/model
step "videos through the server" "$python" tests/serve/videos_test.py \
  --nibble "$nibble" --model pebble/model
step "load tests of servers" "$python" tests/cli/bench_test.py --nibble "$nibble" --model pebble/model
step "the server as a process" "$python" tests/serve/process_test.py \
  --nibble "$nibble" --model pebble/model
step "chat in a terminal" "$python" tests/cli/chat_test.py --nibble "$nibble" --model pebble/model
step "typing into chat" "$python" tests/cli/chat_typing_test.py --nibble "$nibble" \
  --model pebble/model
