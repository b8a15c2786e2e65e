// A checkpoint that answers in this process.
#include <charconv>

#include "checkpoint/source_fingerprint.h"
#include "cli/evaluating/asked_model.h"
#include "cli/evaluating/in_process_server.h"
#include "cli/options/folders.h"
#include "cli/serving/model_loader.h"

namespace nibble {
namespace {

class AskedFolder final : public AskedModel {
 public:
  AskedFolder(std::unique_ptr<InProcessServer> server, Json head)
      : server_(std::move(server)), head_(std::move(head)) {}

  const std::string& model() const override { return model_; }
  const Json& head() const override { return head_; }
  void ask(size_t number, const TaskRequest& request) override {
    server_->ask(concat(number), request.path, request.body.dump());
  }
  std::vector<Reply> take() override {
    std::vector<Reply> replies;
    for (InProcessServer::Answer& answer : server_->take()) {
      Reply reply{.status = answer.response.status, .body = std::move(answer.response.body)};
      std::from_chars(answer.id.data(), answer.id.data() + answer.id.size(), reply.number);
      replies.push_back(std::move(reply));
    }
    return replies;
  }
  int64_t requests_max() const override { return server_->requests_max(); }
  Result<void> failure() const override { return server_->failure(); }

 private:
  std::unique_ptr<InProcessServer> server_;
  std::string model_;
  Json head_;
};

/// The state of the files, and the options that change what is computed. Random weights have no
/// files: the options name their layout.
Result<Json> head_of(const Arguments& arguments, const std::filesystem::path& folder) {
  Json options = Json::Object{};
  for (const Option& option : kModelOptions)
    if (arguments.given(option.name) && option.name != kThreadsOption.name &&
        option.name != kDirectIoOption.name)
      options.set(option.name, Json(*arguments.text(option.name)));
  Json head = json_object({{"folder", folder_name(folder)}, {"options", std::move(options)}});
  if (wants_random_weights(arguments)) return head;
  head.set("fingerprint", TRY(source_fingerprint(TRY(Checkpoint::open(folder)))));
  return head;
}

}  // namespace

Result<std::unique_ptr<AskedModel>> ask_folder(const Arguments& arguments, const std::string& word,
                                               Terminal& terminal) {
  EngineNeeds needs{.use = EngineUse::serving};
  needs.sequences_max = TRY(read_sequences(arguments));
  ClientSetup clients = TRY(read_client_setup(arguments));
  needs.tower = tower_for(clients.images);
  const auto folder = TRY(checkpoint_folder(word, terminal));
  Json head = TRY(head_of(arguments, folder));
  auto server = TRY(InProcessServer::start(arguments, std::move(clients), folder, needs, terminal));
  return std::unique_ptr<AskedModel>(
      std::make_unique<AskedFolder>(std::move(server), std::move(head)));
}

Result<std::unique_ptr<AskedModel>> ask_word(const Arguments& arguments, const std::string& word,
                                             std::string_view model_flag, Terminal& terminal) {
  if (!is_url(word)) return ask_folder(arguments, word, terminal);
  UrlSettings settings{.url = word,
                       .model = arguments.text(model_flag).value_or(""),
                       .api_key = arguments.text("api-key").value_or("")};
  settings.concurrency = TRY(arguments.integer("concurrency", 1, 256));
  return ask_url(settings);
}

std::string refusal_of(const AskedModel::Reply& reply) {
  if (reply.status == 0) return reply.body;
  const auto json = parse_json(reply.body, "the answer");
  const Json* error = json.ok() ? json.value().find("error") : nullptr;
  const Json* message = error == nullptr ? nullptr : error->find("message");
  const bool told = message != nullptr && message->is_string();
  return concat("status ", reply.status, ": ",
                told ? message->as_string() : Json(reply.body.substr(0, 200)).dump());
}

}  // namespace nibble
