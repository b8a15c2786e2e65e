// A test holds the groups to the option table of the verb.
#include "cli/serving/serve_help.h"

#include <algorithm>

namespace nibble {

namespace {

constexpr std::string_view kMostUsed[] = {
    "host",          "port",          "api-key",        "served-model-name",
    "max-model-len", "max-num-seqs",  "kv-cache-dtype", "gpu-memory-utilization",
    "quantize",      "allowed-hosts", "profiles",       "dry-run",
};

constexpr std::string_view kNetwork[] = {
    "host",
    "port",
    "uds",
    "admin-socket",
    "enable-admin-routes",
    "ssl-certfile",
    "ssl-keyfile",
    "ssl-ca-certs",
    "api-key",
    "api-key-file",
    "no-auth",
    "allowed-hosts",
    "allowed-origins",
    "trusted-proxies",
};
constexpr std::string_view kModel[] = {
    "model",        "revision",     "quantization", "quantize", "quantized-folder", "load-format",
    "rope-scaling", "hf-overrides", "direct-io",    "weights",  "stream-weights",
};
constexpr std::string_view kClients[] = {
    "served-model-name",
    "profiles",
    "list-profiles",
    "answer-reserve",
    "strict-fields",
    "reasoning-field",
    "web",
    "response-store",
    "response-store-max-bytes",
    "completion-special-tokens",
    "default-chat-template-kwargs",
};
constexpr std::string_view kMemory[] = {
    "max-model-len",
    "gpu-memory-utilization",
    "kv-cache-memory-bytes",
    "kv-cache-dtype",
    "kv-scales",
    "state-dtype",
    "enable-prefix-caching",
    "cache-mode",
    "prefix-snapshots",
    "prefix-store",
    "prefix-store-max-bytes",
    "host-cache-memory-bytes",
    "sleep-idle",
    "card-limit",
};
constexpr std::string_view kWork[] = {
    "backend",
    "activations",
    "input-scales",
    "emulate-fp4",
    "require-native",
    "threads",
    "isa",
    "max-num-seqs",
    "max-num-batched-tokens",
    "step-time-budget",
    "long-prefill-token-threshold",
    "speculative-config",
    "speculation",
    "draft-quantization",
    "speculative-token-map",
    "step-deadline",
    "check-integrity",
};
constexpr std::string_view kImages[] = {
    "no-vision",           "max-image-tokens",    "encoder-cache-memory-bytes",
    "limit-mm-per-prompt", "mm-processor-kwargs", "max-image-bytes",
    "max-image-pixels",    "max-image-aspect",    "image-timeout",
    "max-image-memory",    "image-threads",       "max-video-bytes",
    "max-video-frames",    "video-timeout",       "allowed-media-domains",
    "allow-media-http",    "media-fetch-timeout",
};
constexpr std::string_view kFilters[] = {
    "filter", "filter-ca", "filter-fail", "filter-timeout", "filter-window", "filter-reasoning",
};
constexpr std::string_view kProcess[] = {
    "dry-run",    "shutdown-timeout", "log-requests", "disable-log-requests",
    "log-format", "log-prompts",
};
constexpr std::string_view kLimits[] = {
    "max-queued-requests",
    "max-queued-tokens",
    "max-connections",
    "max-connections-per-address",
    "max-header-bytes",
    "max-header-lines",
    "max-request-bytes",
    "max-body-memory",
    "header-timeout",
    "body-timeout",
    "keep-alive-timeout",
    "send-timeout",
    "max-send-bytes",
    "max-json-depth",
    "max-messages",
    "max-tools",
    "max-choices",
    "max-logprobs",
    "max-stop-strings",
    "max-stop-bytes",
    "max-logit-bias",
    "max-structure-bytes",
    "max-structure-choices",
    "max-schema-depth",
    "max-schemas",
    "structure-timeout",
    "structure-memory-bytes",
    "structure-cache-bytes",
    "max-template-steps",
    "max-template-bytes",
    "max-template-depth",
};

constexpr OptionGroup kGroups[] = {
    {"Ways in", kNetwork},        {"The model", kModel},      {"What clients see", kClients},
    {"Memory", kMemory},          {"How it computes", kWork}, {"Images and videos", kImages},
    {"Output filters", kFilters}, {"The process", kProcess},  {"Limits of clients", kLimits},
};

/// The verb with the named options alone, in this order, as its help has rows for them.
std::string rows(std::span<const std::string_view> names) {
  std::vector<Option> options;
  for (const std::string_view name : names)
    for (const Option& option : kServeVerb.options)
      if (option.name == name) options.push_back(option);
  return option_rows(options);
}

}  // namespace

std::span<const OptionGroup> serve_option_groups() { return kGroups; }
std::span<const std::string_view> most_used_serve_options() { return kMostUsed; }

std::string serve_help(HelpLength length) {
  std::string text = concat(help_head(kServeVerb), "\nThe most used options (each option also as ",
                            "NIBBLE_<NAME> in the environment):\n", rows(kMostUsed));
  if (length == HelpLength::most_used)
    text += "\nThe others, which `nibble serve --help=all` explains:\n";
  for (const OptionGroup& group : kGroups) {
    if (length == HelpLength::all) {
      text += concat("\n", group.title, ":\n", rows(group.names));
      continue;
    }
    constexpr size_t kColumns = 110;
    std::string line = concat("  ", group.title, ":");
    for (const std::string_view name : group.names) {
      if (std::ranges::find(kMostUsed, name) != std::end(kMostUsed)) continue;
      if (line.size() + name.size() + 3 > kColumns)
        text += concat(std::exchange(line, "   "), "\n");
      line += concat(" --", name);
    }
    text += concat(line, "\n");
  }
  return text + common_help() + "\n" + foreign_help(kServeVerb);
}

}  // namespace nibble
