// Names of variables and files: the clients' own documentation, 2026.
#include "cli/serving/connections.h"

#include <algorithm>

#include "base/concat.h"
#include "base/json.h"

namespace nibble {

namespace {

// The share of a context that is reserved for the answer where a client wants both numbers.
constexpr int64_t kAnswerShare = 4;
constexpr int64_t kAnswerTokensMax = 32'768;

int64_t answer_tokens(int64_t context) {
  return std::min(context / kAnswerShare, kAnswerTokensMax);
}

/// A word as a POSIX shell takes it.
std::string shell(std::string_view word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./:@%+=,").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// TOML's and YAML's strings in double quotes are JSON's, but for what no name has.
std::string string_of(std::string_view text) { return Json(text).dump(); }

std::string variable(std::string_view name, std::string_view value) {
  return concat("export ", name, "=", shell(value), "\n");
}

std::string claude(const ServerFacts& facts) {
  std::string text = "# In the shell that starts it:\n";
  text += variable("ANTHROPIC_BASE_URL", facts.url);
  text += variable("ANTHROPIC_AUTH_TOKEN", facts.api_key);
  text += variable("ANTHROPIC_MODEL", facts.model);
  for (const char* size : {"OPUS", "SONNET", "HAIKU"})
    text += variable(concat("ANTHROPIC_DEFAULT_", size, "_MODEL"), facts.model);
  if (facts.context_tokens)
    text += variable("CLAUDE_CODE_MAX_OUTPUT_TOKENS", concat(answer_tokens(*facts.context_tokens)));
  text += variable("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
  return text + "claude\n";
}

/// The name is not NIBBLE_API_KEY: a server started in the same shell would take that as its own
/// key.
constexpr std::string_view kCodexVariable = "CODEX_NIBBLE_KEY";

std::string codex(const ServerFacts& facts) {
  std::string text = "# In ~/.codex/config.toml, above its first table:\n";
  text += concat("model = ", string_of(facts.model), "\nmodel_provider = \"nibble\"\n");
  if (facts.context_tokens) text += concat("model_context_window = ", *facts.context_tokens, "\n");
  text += concat("\n# and at its end:\n[model_providers.nibble]\nname = \"Nibble\"\nbase_url = ",
                 string_of(facts.url + "/v1"), "\nwire_api = \"responses\"\nenv_key = \"",
                 kCodexVariable, "\"\n");
  return text + "\n# In the shell that starts it:\n" + variable(kCodexVariable, facts.api_key) +
         "codex\n";
}

std::string opencode(const ServerFacts& facts) {
  Json model = json_object({{"name", Json(facts.model)}});
  if (facts.context_tokens)
    model.set("limit", json_object({{"context", Json(*facts.context_tokens)},
                                    {"output", Json(answer_tokens(*facts.context_tokens))}}));
  if (facts.images) {
    const Json text("text");
    model.set("attachment", Json(true));
    model.set("modalities", json_object({{"input", Json(Json::Array{text, Json("image")})},
                                         {"output", Json(Json::Array{text})}}));
  }
  const Json provider = json_object({{"npm", Json("@ai-sdk/openai-compatible")},
                                     {"name", Json("Nibble")},
                                     {"options", json_object({{"baseURL", Json(facts.url + "/v1")},
                                                              {"apiKey", Json(facts.api_key)}})},
                                     {"models", json_object({{facts.model, std::move(model)}})}});
  const Json file = json_object({{"$schema", Json("https://opencode.ai/config.json")},
                                 {"provider", json_object({{"nibble", provider}})},
                                 {"model", Json(concat("nibble/", facts.model))}});
  return "# In ~/.config/opencode/opencode.json, or opencode.json of a project:\n" +
         file.dump_pretty();
}

std::string open_webui(const ServerFacts& facts) {
  std::string text = "# In the shell that starts it:\n";
  text += variable("OPENAI_API_BASE_URL", facts.url + "/v1");
  text += variable("OPENAI_API_KEY", facts.api_key);
  text += variable("ENABLE_OLLAMA_API", "false");
  return text +
         "open-webui serve\n"
         "# One that has run before: Admin Settings, Connections, OpenAI API, with this URL and "
         "key.\n"
         "# In a container 127.0.0.1 is the container: start `nibble serve` with --host 0.0.0.0 "
         "and --api-key,\n"
         "# and say http://host.docker.internal with the same port.\n";
}

std::string cline(const ServerFacts& facts) {
  std::string text = concat("# In the settings of the extension:\nAPI Provider    OpenAI ",
                            "Compatible\nBase URL        ", facts.url, "/v1\nAPI Key         ",
                            facts.api_key, "\nModel ID        ", facts.model, "\n");
  if (facts.context_tokens)
    text += concat("Model Configuration: Context Window Size ", *facts.context_tokens,
                   ", Max Output Tokens ", answer_tokens(*facts.context_tokens), "\n");
  if (facts.images) text += "                Supports Images: on\n";
  return text;
}

std::string continue_dev(const ServerFacts& facts) {
  std::string text = concat(
      "# In ~/.continue/config.yaml:\nname: Nibble\nversion: 1.0.0\nschema: v1\nmodels:\n",
      "  - name: ", string_of(facts.model),
      "\n    provider: openai\n    model: ", string_of(facts.model),
      "\n    apiBase: ", string_of(facts.url + "/v1"), "\n    apiKey: ", string_of(facts.api_key),
      "\n    roles: [chat, edit, apply, summarize]\n    capabilities: [tool_use",
      facts.images ? ", image_input" : "", "]\n");
  if (facts.context_tokens)
    text += concat("    defaultCompletionOptions:\n      contextLength: ", *facts.context_tokens,
                   "\n      maxTokens: ", answer_tokens(*facts.context_tokens), "\n");
  return text;
}

std::string aider(const ServerFacts& facts) {
  std::string text;
  if (facts.context_tokens) {
    Json limits = json_object({{"max_input_tokens", Json(*facts.context_tokens)},
                               {"max_output_tokens", Json(answer_tokens(*facts.context_tokens))},
                               {"input_cost_per_token", Json(0)},
                               {"output_cost_per_token", Json(0)},
                               {"litellm_provider", Json("openai")},
                               {"mode", Json("chat")}});
    if (facts.images) limits.set("supports_vision", Json(true));
    text = "# In .aider.model.metadata.json of the project or of your home:\n" +
           json_object({{concat("openai/", facts.model), limits}}).dump_pretty() + "\n";
  }
  text += "# In the shell that starts it:\n";
  text += variable("OPENAI_API_BASE", facts.url + "/v1");
  text += variable("OPENAI_API_KEY", facts.api_key);
  return text + concat("aider --model ", shell(concat("openai/", facts.model)), "\n");
}

constexpr ClientRecipe kRecipes[] = {
    {"claude", "Claude Code", claude},  {"codex", "Codex CLI", codex},
    {"opencode", "opencode", opencode}, {"openwebui", "Open WebUI", open_webui},
    {"cline", "Cline", cline},          {"continue", "Continue", continue_dev},
    {"aider", "aider", aider},
};

}  // namespace

std::span<const ClientRecipe> client_recipes() { return kRecipes; }

}  // namespace nibble
