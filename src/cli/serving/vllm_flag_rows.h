// vLLM's flags of `serve` (0.26 to 0.33) that are no options here, by what becomes of them and why;
// and which of its flags are options. Data alone: vllm_flags.h reads it, docs/serving.md shows it.
#pragma once

#include <string_view>

namespace nibble {

/// Flags with one answer. A word of `names` is NAME, NAME=VALUE (it takes a value, which help calls
/// so; VALUE... takes several) and, after a comma, its short form: "nnodes=N,-n".
struct VllmFlagGroup {
  std::string_view names;
  /// Values that are taken, with commas; "*": any, "N": any whole number, "JSON": any object;
  /// empty: none.
  std::string_view taken;
  std::string_view accepted;
  std::string_view refused;
};

inline constexpr std::string_view kAnyBool = "true,false";
inline constexpr std::string_view kOneCard =
    "one process drives one card; for more, run a process on each behind a gateway";
inline constexpr std::string_view kOwnKernels =
    "kernels are the program's own, chosen by card, format and shape";
inline constexpr std::string_view kRecorded =
    "passes are recorded where that is faster, in memory that the plan has counted";
inline constexpr std::string_view kOwnMedia =
    "images and videos have flags of their own (--help=all, Images and videos); sound is refused";
inline constexpr std::string_view kPlanned =
    "memory is planned at start: pages of 64 tokens and a slot for each state";

inline constexpr VllmFlagGroup kVllmFlagGroups[] = {
    // The published command lines use these.
    {"reasoning-parser=NAME", "qwen3,deepseek_r1",
     "thinking is always split off, at <think> and </think>",
     "thinking is split off at <think> and </think> alone, as qwen3 does"},
    {"tool-call-parser=NAME", "qwen3,qwen3_coder,qwen3_xml",
     "calls are read in the one form that these names mean, <function=NAME><parameter=KEY>",
     "calls are read in the form <function=NAME><parameter=KEY> alone, as qwen3_coder does"},
    {"enable-auto-tool-choice", "true", "calls are always read where a request has tools",
     "a request switches calls off with tool_choice \"none\""},
    {"trust-remote-code", kAnyBool, "no code of a checkpoint is ever run", ""},
    {"attention-backend=NAME",
     "auto,flash_attn,flashinfer,triton_attn,flex_attention,tree_attn,torch_sdpa,cpu_attn,b12x,"
     "hpc_attn,rocm_attn,rocm_aiter_fa,rocm_aiter_unified_attn",
     kOwnKernels, "these are vLLM's names for models of this kind"},
    {"moe-backend=NAME",
     "auto,triton,batched_triton,triton_unfused,deep_gemm,cutlass,flashinfer_trtllm,"
     "flashinfer_cutlass,flashinfer_cutedsl,flashinfer_b12x,b12x,marlin,humming,aiter,flydsl,hpc,"
     "emulation",
     kOwnKernels, "these are vLLM's names for models of this kind"},
    {"linear-backend=NAME gdn-prefill-backend=NAME kda-prefill-backend=NAME "
     "kda-decode-backend=NAME mamba-backend=NAME mamba-ssu-algorithm=NAME "
     "sparse-indexer-topk-backend=NAME kernel-config=JSON attention-config=JSON,-ac "
     "ir-op-priority=JSON monokernel=NAME enable-flashinfer-autotune disable-cascade-attn "
     "enable-bf16x3-router-gemm",
     "*", kOwnKernels, ""},
    {"enable-chunked-prefill", "true", "prompts are always computed in chunks",
     "prompts are always computed in chunks of at most --max-num-batched-tokens; raise that for "
     "larger ones"},
    {"async-scheduling", kAnyBool,
     "the host's work beside the card's is in a fixed order that no answer depends on", ""},
    {"dtype=NAME", "auto,bfloat16", "activations are BF16 and weights stay as their file has them",
     "activations are BF16; --activations f32 computes in F32, slowly"},
    {"max-cudagraph-capture-size=N cudagraph-capture-sizes=N...", "N", kRecorded,
     "these are numbers of tokens"},
    {"enforce-eager compilation-config=JSON,-cc optimization-level=N,-O performance-mode=NAME", "*",
     kRecorded, ""},
    {"tensor-parallel-size=N,-tp pipeline-parallel-size=N,-pp data-parallel-size=N,-dp "
     "data-parallel-size-local=N,-dpl decode-context-parallel-size=N,-dcp "
     "prefill-context-parallel-size=N,-pcp nnodes=N,-n api-server-count=N,-asc",
     "1", kOneCard, kOneCard},
    {"calculate-kv-scales", "false", "keys and values in FP8 have scale 1",
     "scales made from the first prompts would hold for all later ones, and answers with them are "
     "reported to be gibberish; keys and values in FP8 have scale 1"},
    {"enable-lora", "false", "adapters are not served", "adapters are not served"},

    // Memory and caches.
    {"swap-space=GIB", "*", "--host-cache-memory-bytes is what host memory is used for", ""},
    {"block-size=N", "N", kPlanned, "this is a number of tokens"},
    {"mamba-block-size=N mamba-cache-mode=NAME enable-mamba-shared-prefix-checkpoint "
     "prefix-match-unit=NAME prefix-cache-retention-interval=N prefix-caching-hash-algo=NAME "
     "disable-hybrid-kv-cache-manager enable-cumem-allocator watermark=SHARE",
     "*", kPlanned, ""},
    {"mamba-cache-dtype=NAME", "auto,float32",
     "the inputs of convolutions are kept in F32; --mamba-ssm-cache-dtype is the state's",
     "the inputs of convolutions are kept in F32; --mamba-ssm-cache-dtype is the state's"},
    {"cpu-offload-gb=GIB", "0", "weights are on the card", "weights have to fit on the card"},
    {"num-gpu-blocks-override=N", "", "", "--kv-cache-memory-bytes says how large the cache is"},
    {"kv-cache-dtype-skip-layers=LIST kv-sharing-fast-prefill", "", "",
     "all layers keep keys and values alike"},
    {"kv-offloading-size=GIB kv-offloading-backend=NAME", "", "",
     "--host-cache-memory-bytes keeps swapped sequences and cached prefixes in host memory"},
    {"offload-backend=NAME cpu-offload-params=LIST offload-group-size=N offload-num-in-group=N "
     "offload-prefetch-step=N offload-params=LIST",
     "", "", "weights have to fit on the card"},
    {"enable-mamba-cache-stochastic-rounding mamba-cache-philox-rounds=N replayssm-buffer-len=N "
     "use-replayssm swa-bounded-replay",
     "", "", "the state is F32, or BF16 with --mamba-ssm-cache-dtype bfloat16, rounded to nearest"},

    // Loading.
    {"tokenizer-mode=NAME", "auto,hf", "tokenizer.json is read", "tokenizer.json is read"},
    {"config-format=NAME", "auto,hf", "config.json is read", "config.json is read"},
    {"runner=NAME", "auto,generate", "text is what is generated", "text is what is generated"},
    {"convert=NAME", "auto,none", "text is what is generated", "text is what is generated"},
    {"model-impl=NAME", "auto,vllm", "the models are the program's own",
     "the models are the program's own"},
    {"code-revision=NAME use-tqdm-on-load max-parallel-loading-workers=N "
     "safetensors-load-strategy=NAME safetensors-prefetch-num-threads=N "
     "safetensors-prefetch-block-size=N model-loader-extra-config=JSON pt-load-map-location=NAME "
     "ignore-patterns=LIST",
     "*", "the checkpoint's safetensors files are read in parallel, and nothing else of it is run",
     ""},
    {"tokenizer=DIR tokenizer-revision=NAME hf-config-path=DIR skip-tokenizer-init", "", "",
     "config, tokenizer and weights are those of one folder"},
    {"download-dir=DIR hf-token=KEY", "*", "nothing is downloaded", ""},
    {"quantization-config=JSON allow-deprecated-quantization", "", "",
     "formats are what the checkpoint declares; --quantize RECIPE quantizes a BF16 one first"},
    {"model-class-overrides=JSON logits-processors=LIST io-processor-plugin=NAME worker-cls=NAME "
     "worker-extension-cls=NAME scheduler-cls=NAME reasoning-parser-plugin=FILE "
     "tool-parser-plugin=FILE middleware=NAME additional-config=JSON weight-transfer-config=JSON",
     "", "", "no Python code is run"},

    // Several cards and hosts.
    {"node-rank=N,-r data-parallel-rank=N,-dpn data-parallel-start-rank=N,-dpr", "0", kOneCard,
     kOneCard},
    {"disable-custom-all-reduce enable-expert-parallel,-ep enable-eplb enable-dbo "
     "distributed-executor-backend=NAME disable-nccl-for-dp-synchronization",
     "*", kOneCard, ""},
    {"data-parallel-address=HOST,-dpa data-parallel-rpc-port=N,-dpp "
     "data-parallel-backend=NAME,-dpb "
     "data-parallel-hybrid-lb,-dph data-parallel-external-lb,-dpe "
     "data-parallel-multi-port-external-lb,-dpm data-parallel-supervisor-port=N "
     "dp-supervisor-probe-interval-s=SECONDS dp-supervisor-probe-timeout-s=SECONDS "
     "dp-supervisor-probe-failure-threshold=N dp-sync-interval=N headless master-addr=HOST "
     "master-port=N distributed-timeout-seconds=SECONDS cpu-distributed-timeout-seconds=SECONDS "
     "device-ids=LIST dcp-comm-backend=NAME dcp-q-replicate dcp-kv-cache-interleave-size=N "
     "cp-kv-cache-interleave-size=N enable-hc-sp enable-batch-sharded-sampling "
     "enable-ep-weight-filter all2all-backend=NAME enable-shm-tensor-arena ubatch-size=N "
     "enable-elastic-ep elastic-ep-max-dp-size=N dbo-decode-token-threshold=N "
     "dbo-prefill-token-threshold=N eplb-config=JSON expert-placement-strategy=NAME "
     "ray-workers-use-nsight enable-fault-tolerance fault-tolerance-config=JSON "
     "enable-nccl-comm-suspend enable-scale-out",
     "", "", kOneCard},
    {"numa-bind numa-bind-nodes=LIST numa-bind-cpus=LIST", "", "",
     "start the program under numactl instead"},
    {"kv-transfer-config=JSON kv-events-config=JSON ec-transfer-config=JSON "
     "ec-manager-config=JSON",
     "", "", "caches are not shared between processes"},

    // Media and adapters.
    {"skip-mm-profiling disable-chunked-mm-input interleave-mm-strings "
     "mm-processor-cache-gb=GIB mm-processor-cache-type=NAME mm-encoder-tp-mode=NAME "
     "mm-encoder-attn-backend=NAME mm-encoder-attn-dtype=NAME mm-hasher-algorithm=NAME "
     "mm-shm-cache-max-object-size-mb=N mm-encoder-fp8-scale-path=FILE "
     "mm-encoder-fp8-scale-save-path=FILE mm-encoder-fp8-scale-save-margin=N "
     "video-pruning-rate=SHARE video-pruning-method=NAME mm-tensor-ipc=NAME "
     "mm-processor-device=NAME mm-ipc-gpu-memory-gb=GIB mm-device-do-normalize "
     "media-io-kwargs=JSON "
     "renderer-num-workers=N",
     "*", kOwnMedia, ""},
    {"allowed-local-media-path=DIR enable-mm-embeds mm-encoder-only enable-prompt-embeds "
     "trust-request-mm-kwargs",
     "false", kOwnMedia,
     "media come in requests or from hosts that --allowed-media-domains names; embeddings are "
     "refused"},
    {"lora-modules=LIST... max-loras=N max-lora-rank=N lora-dtype=NAME "
     "enable-tower-connector-lora max-cpu-loras=N fully-sharded-loras lora-target-modules=LIST... "
     "default-mm-loras=JSON specialize-active-lora enable-mixed-moe-lora-format "
     "enable-moe-shared-loras max-lora-cls-labels=N",
     "", "", "adapters are not served"},

    // Requests and answers.
    {"seed=N", "N", "a request's own seed makes its answer repeatable, and no other seed is used",
     "this is a whole number"},
    {"generation-config=NAME", "auto", "generation_config.json of the checkpoint is read",
     "generation_config.json of the checkpoint is read; --profiles sets other defaults"},
    {"override-generation-config=JSON", "", "", "--profiles sets other defaults"},
    {"chat-template=FILE", "", "", "the checkpoint's own template is read: replace that file"},
    {"chat-template-content-format=NAME", "auto,string,openai",
     "messages reach the template in the form that it asks for",
     "messages reach the template in the form that it asks for"},
    {"trust-request-chat-template", "false", "requests bring no templates",
     "requests bring no templates"},
    {"response-role=NAME", "assistant", "that is the role of answers",
     "the role of answers is assistant"},
    {"scheduling-policy=NAME", "fcfs,priority",
     "requests with a priority go by it, and equal ones by when they came",
     "requests with a priority go by it, and equal ones by when they came"},
    {"structured-outputs-config=JSON guided-decoding-backend=NAME", "*",
     "structures are enforced by xgrammar", ""},
    {"logprobs-mode=NAME", "raw_logprobs", "these are what is given", "raw_logprobs are given"},
    {"exclude-tools-when-tool-choice-none", "false", "the template sees the tools of every request",
     "the template sees the tools of every request"},
    {"tool-strict-level=NAME", "auto", "calls of a tool that says strict follow its schema",
     "calls of a tool that says strict follow its schema"},
    {"enable-prompt-tokens-details enable-server-load-tracking enable-tokenizer-info-endpoint "
     "enable-request-id-headers",
     "*", "these are always on", ""},
    {"sse-keep-alive-interval=SECONDS", "*", "a silent stream gets a comment every 10 seconds", ""},
    {"stream-interval=N", "1", "each token is sent when it is there",
     "each token is sent when it is there"},
    {"reasoning-config=JSON", "*", "a thinking budget closes with </think>", ""},
    {"return-tokens-as-token-ids enable-force-include-usage enable-per-request-metrics tokens-only "
     "enable-return-routed-experts return-sampling-mask enable-trace-replay use-fp64-gumbel",
     "false", "answers have one form unless a request asks for another",
     "answers have one form unless a request asks for another"},
    {"disable-sliding-window enable-log-deltas enable-flash-late-interaction "
     "cohere-is-reasoning-model",
     kAnyBool, "it concerns other models", ""},
    {"tool-server=HOST fingerprint-mode=NAME fingerprint-value=TEXT cohere-format=NAME "
     "anthropic-disabled-thinking-effort=NAME pooler-config=JSON watermark-config=JSON "
     "diffusion-config=JSON,-dc engram-config=JSON aux-output-config=JSON",
     "", "", "it is no part of this server"},
    {"spec-method=NAME spec-model=DIR spec-tokens=N per-request-spec-decode-metrics=NAME", "", "",
     "--speculative-config has all of speculation"},

    // Scheduling.
    {"max-num-partial-prefills=N max-long-partial-prefills=N max-num-scheduled-tokens=N "
     "max-num-active-seqs=N long-prefill-token-threshold-adaptive scheduler-reserve-full-isl "
     "prefill-schedule-interval=N override-attention-dtype=NAME",
     "*", "passes are planned by time: --step-time-budget, --long-prefill-token-threshold", ""},

    // The process, its log and its doors.
    {"watchdog-config=JSON", "*", "--step-deadline ends a pass that does not end", ""},
    {"enable-sleep-mode sleep-mode-offload-cudagraph sleep-preserve-parameter-names "
     "sleep-mode-backend=NAME",
     "*",
     "/sleep and /wake_up are there: on --admin-socket, or to clients with --enable-admin-routes",
     ""},
    {"disable-log-stats aggregate-engine-logging enable-logging-iteration-details "
     "kv-cache-metrics kv-cache-metrics-sample=SHARE cudagraph-metrics enable-mfu-metrics "
     "show-hidden-metrics-for-version=NAME custom-histogram-buckets=JSON "
     "collect-detailed-traces=LIST "
     "enable-layerwise-nvtx-tracing jit-monitor-mode=NAME jit-monitor-verbose "
     "fail-on-environ-validation profiler-config=JSON logging-config=JSON log-level=NAME "
     "log-config-file=FILE uvicorn-log-level=NAME "
     "disable-access-log-for-endpoints=LIST enable-log-requests max-log-len=N log-error-stack",
     "*",
     "there is one log (--log-requests, --log-format, --log-prompts), and /metrics has the rest",
     ""},
    {"enable-log-outputs", "false", "answers are never logged", "answers are never logged"},
    {"otlp-traces-endpoint=URL", "", "", "the log has the trace id of each request"},
    {"allow-credentials", "false", "pages of other sites send no cookies",
     "pages of other sites send no cookies"},
    {"allowed-methods=JSON allowed-headers=JSON", "*",
     "--allowed-origins alone decides what pages of other sites may do", ""},
    {"enable-ssl-refresh", kAnyBool, "certificates are always read again when they change", ""},
    {"ssl-cert-reqs=N ssl-ciphers=LIST", "", "",
     "TLS is 1.2 or 1.3 with strong ciphers, and --ssl-ca-certs asks clients for certificates"},
    {"enable-offline-docs", kAnyBool, "/docs comes from the program itself", ""},
    {"disable-fastapi-docs", "false", "/docs is there unless --no-web is given",
     "--no-web switches /docs off, and the page with it"},
    {"h11-max-incomplete-event-size=N h11-max-header-count=N", "N",
     "--max-header-bytes and --max-header-lines are the limits", "this is a whole number"},
    {"root-path=PATH", "", "", "let the proxy remove the prefix"},
    {"grpc grpc-port=N", "", "", "the APIs are HTTP"},
};

/// vLLM's flags that are options here, under its name or another.
struct VllmOption {
  std::string_view names;
  std::string_view what;  // how it differs, or its meaning
};

inline constexpr VllmOption kVllmOptions[] = {
    {"model", "the model's place, if it does not stand first; the word itself is better"},
    {"host port uds shutdown-timeout", "as in vLLM; the host is 127.0.0.1 unless it is given"},
    {"ssl-certfile ssl-keyfile ssl-ca-certs allowed-origins", "as in vLLM"},
    {"api-key",
     "every route but the probes and the page needs it, not /v1 alone; VLLM_API_KEY too"},
    {"served-model-name", "as in vLLM: words up to the next flag, so the model stands first"},
    {"max-model-len", "as in vLLM; auto:4 is the longest that fits four times at once"},
    {"max-num-seqs max-num-batched-tokens", "as in vLLM"},
    {"max-num-queued-reqs max-num-queued-tokens", "as --max-queued-requests, --max-queued-tokens"},
    {"gpu-memory-utilization device-memory-utilization",
     "the share of the card, on a CPU of what is available, for weights, caches and workspace"},
    {"kv-cache-memory-bytes", "exactly so many bytes of pages"},
    {"kv-cache-dtype",
     "auto, bfloat16, fp8, fp8_e4m3, turboquant_4bit_nc, nvfp4; others are refused"},
    {"mamba-ssm-cache-dtype", "float32 or bfloat16"},
    {"enable-prefix-caching", "on by default; true or false may follow"},
    {"language-model-only", "the vision tower is left out: --no-vision"},
    {"hf-overrides", "rope_parameters or rope_scaling, at the top or in text_config; no other key"},
    {"quantization", "checked: what config.json declares has to be of this kind"},
    {"revision", "the branch, tag or commit of ORG/NAME in the Hugging Face cache"},
    {"load-format",
     "auto, safetensors, dummy; fastsafetensors, runai_streamer, instanttensor mean safetensors"},
    {"speculative-config", "the methods ngram and mtp"},
    {"default-chat-template-kwargs", "as in vLLM"},
    {"limit-mm-per-prompt",
     "images and videos of a request, 8 and 4 by default; that of audio is read and is 0"},
    {"mm-processor-kwargs", "min_pixels and max_pixels of images, fps or num_frames of videos"},
    {"allowed-media-domains",
     "a list with commas; *.example.org too, https alone unless --allow-media-http"},
    {"max-logprobs long-prefill-token-threshold", "as in vLLM"},
    {"disable-log-requests disable-uvicorn-access-log", "as --no-log-requests"},
    {"config", "TOML with a table [serve] of the flags' names, not YAML"},
};

}  // namespace nibble
