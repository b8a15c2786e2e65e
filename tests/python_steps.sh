# Sourced by ./test: the Python tests that need no torch. Uses step, $python and build/test.
nibble=build/test/src/cli/nibble
step "tokenizer equals Hugging Face tokenizers" "$python" tools/oracle/tokenizer_test.py \
  build/test/src/text/nibble_tokenizer_tool build/cache
step "chat templates equal Jinja2" "$python" tools/oracle/template_test.py \
  build/test/src/text/nibble_template_tool
step "bad input at the command line" "$python" tests/cli/bad_input_test.py \
  --nibble "$nibble" --model pebble/model
step "a real client of the server" "$python" tests/serve/serve_test.py \
  --nibble "$nibble" --model pebble/model
step "clients of the other APIs" "$python" tests/serve/other_apis_test.py \
  --nibble "$nibble" --model pebble/model
step "metrics are well formed" "$python" tests/serve/metrics_format_test.py \
  --nibble "$nibble" --model pebble/model
step "what may be asked of answers" "$python" tests/serve/answers_test.py \
  --nibble "$nibble" --model pebble/model
step "the server as a process" "$python" tests/serve/process_test.py \
  --nibble "$nibble" --model pebble/model
step "chat in a terminal" "$python" tests/cli/chat_test.py --nibble "$nibble" --model pebble/model
step "how clients are told of a server" "$python" tests/cli/connect_test.py \
  --nibble "$nibble" --model pebble/model
step "batches of requests" "$python" tests/cli/batch_test.py --nibble "$nibble" --model pebble/model
step "score: logits, figures, divergence" "$python" tests/cli/score_test.py --nibble "$nibble"
step "sampler goldens are what the oracle gives" "$python" tools/oracle/sampler_golden.py --check
step "what verify measures and writes into a card" "$python" tests/cli/verify_test.py \
  --nibble "$nibble" --model pebble/model
step "quantize goes on after kills" "$python" tests/cli/crash_test.py --nibble "$nibble" \
  --model pebble/model
