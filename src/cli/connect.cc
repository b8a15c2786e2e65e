// nibble connect: how a client is configured for a server. Prints; writes no file.
#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "cli/serving/connections.h"
#include "cli/verb.h"
#include "server/http/http_client.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"url", "URL", "http://127.0.0.1:8000", "the server"},
    {"model", "NAME", "",
     "the name to ask for, such as BASE:thinking-coding; default: the server's"},
    {"api-key", "KEY", "",
     "the key that the server wants; default: a word, for one that wants none", "",
     OptionForm::plain, OptionSecrecy::secret},
};

constexpr std::string_view kAnyKey = "nibble";

/// The address without what clients add to it.
Result<std::string> base_url(const Arguments& arguments) {
  std::string url = *arguments.text("url");
  if (url.find("://") == std::string::npos) url = "http://" + url;
  const bool known = url.starts_with("http://") || url.starts_with("https://");
  const bool odd = std::ranges::any_of(url, [](char c) { return c <= ' ' || c == 127; });
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - std::string_view("/v1").size());
  while (url.ends_with('/')) url.pop_back();
  if (!known || odd || url.ends_with(":"))
    return make_error(ErrorCode::invalid_argument, {.what = "--url",
                                                    .expected = "such as http://127.0.0.1:8000",
                                                    .found = *arguments.text("url")});
  return url;
}

/// The server's answer to a GET of a path below its base.
Result<HttpResponse> ask(const ServerFacts& facts, const std::string& path) {
  const HttpUrl parsed = TRY(parse_http_url(facts.url));
  const std::string prefix = parsed.path == "/" ? "" : parsed.path;
  return http_send(parsed, {.method = "GET",
                            .path = prefix + path,
                            .headers = {{"authorization", concat("Bearer ", facts.api_key)}},
                            .body = ""});
}

/// The models that the server lists.
Result<Json::Array> ask_models(const ServerFacts& facts) {
  const HttpResponse answer = TRY(ask(facts, "/v1/models"));
  constexpr int kUnauthorised = 401;
  if (answer.status == kUnauthorised)
    return make_error(ErrorCode::invalid_argument, {.what = concat(facts.url, " wants a key"),
                                                    .advice = "give it with --api-key"});
  const auto json = parse_json(answer.body, "its list of models");
  const Json* data = json.ok() ? json.value().find("data") : nullptr;
  if (answer.status != 200 || data == nullptr || !data->is_array() || data->as_array().empty())
    return make_error(ErrorCode::unsupported, {.what = concat(facts.url, "/v1/models"),
                                               .expected = "a list of models",
                                               .found = concat("status ", answer.status)});
  return data->as_array();
}

/// A name as a segment of a path (RFC 3986).
std::string path_segment(std::string_view name) {
  constexpr const char* kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-._~:").find(c) != std::string_view::npos)
      out += c;
    else
      out += {'%', kHex[byte / 16], kHex[byte % 16]};
  }
  return out;
}

/// A model that the server takes and does not list, such as a profile's name alone; null: none.
Json unlisted_model(const ServerFacts& facts) {
  const auto answer = ask(facts, "/v1/models/" + path_segment(facts.model));
  if (!answer.ok() || answer.value().status != 200) return {};
  auto model = parse_json(answer.value().body, "a model");
  return model.ok() ? std::move(model).value() : Json();
}

std::string id_of(const Json& model) {
  const Json* id = model.find("id");
  return id != nullptr && id->is_string() ? id->as_string() : "";
}

/// Takes name and context from the server's list. A name that it does not know is reported.
void use_models(const Json::Array& models, ServerFacts& facts, Terminal& terminal) {
  if (facts.model.empty()) facts.model = id_of(models.front());
  const auto found = std::ranges::find(models, facts.model, id_of);
  const Json model = found != models.end() ? *found : unlisted_model(facts);
  if (!model.is_null()) {
    const Json* context = model.find("max_model_len");
    if (context != nullptr && context->is_int()) facts.context_tokens = context->as_int();
    const Json* takes = model.find("input_modalities");
    facts.images = takes != nullptr && takes->is_array() &&
                   std::ranges::find(takes->as_array(), Json("image")) != takes->as_array().end();
    return;
  }
  std::vector<std::string> ids;
  std::string all;
  for (const Json& model : models) ids.push_back(id_of(model));
  for (const std::string& id : ids) all += concat(all.empty() ? "" : ", ", id);
  terminal.err(concat("note: ", facts.url, " does not list ", facts.model, "; it has ", all, "\n"));
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const std::string& name = arguments.positional(0);
  std::vector<std::string_view> names;
  std::string all;
  for (const ClientRecipe& each : client_recipes()) {
    names.push_back(each.name);
    all += concat(all.empty() ? "" : ", ", each.name);
  }
  const auto recipe = std::ranges::find(client_recipes(), name, &ClientRecipe::name);
  if (recipe == client_recipes().end()) {
    const std::string_view near = nearest_name(name, names);
    return make_error(ErrorCode::invalid_argument,
                      {.what = "CLIENT",
                       .expected = concat("one of ", all),
                       .found = name,
                       .advice = near.empty() ? "" : concat("did you mean ", near, "?")});
  }
  ServerFacts facts{.url = TRY(base_url(arguments)),
                    .model = arguments.text("model").value_or(""),
                    .api_key = arguments.text("api-key").value_or(std::string(kAnyKey))};
  for (const std::string& word : {facts.model, facts.api_key})
    if (std::ranges::any_of(word, [](char c) { return (c >= 0 && c < ' ') || c == 127; }))
      return make_error(ErrorCode::invalid_argument, {.what = "--model and --api-key",
                                                      .expected = "no control characters",
                                                      .found = Json(word).dump()});
  const auto models = ask_models(facts);
  if (models.ok()) {
    use_models(models.value(), facts, terminal);
  } else if (models.error().code == ErrorCode::invalid_argument) {
    return models.error();
  } else {
    terminal.err(concat("note: the server was not asked: ", models.error().message, "\n"));
    if (facts.model.empty())
      return make_error(
          ErrorCode::not_found,
          {.what = "no model name", .advice = "start `nibble serve DIR`, or say --model NAME"});
  }
  TRY(terminal.out(concat("# ", recipe->title, " and ", facts.model, " on ", facts.url, "\n",
                          recipe->write(facts))));
  return kExitOk;
}

}  // namespace

const Verb kConnectVerb = {.name = "connect",
                           .positionals = "CLIENT",
                           .summary =
                               "Prints how claude, codex, opencode, openwebui, cline, "
                               "continue or aider is set up for a server",
                           .options = kOptions,
                           .run = run};

}  // namespace nibble
