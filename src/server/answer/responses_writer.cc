// OpenAI's Responses API: items of reasoning, message and function_call; every event is numbered.
#include "server/answer/answer_writer.h"

namespace nibble {

namespace {

struct Item {
  OutputEvent::Kind kind = OutputEvent::Kind::content;  // reasoning, content or tool_begin
  std::string id;
  std::string text;           // or the JSON of a call's arguments
  std::string call_id, name;  // id and name of a call
  std::string status = "in_progress";
  Json::Array logprobs = {};  // log-probabilities of a message
};

class ResponsesWriter final : public AnswerWriter {
 public:
  explicit ResponsesWriter(AnswerFrame frame)
      : head_(std::move(frame.head)), echoed_(frame.request.echoed), names_(frame.names) {}

  std::string begin() override {
    std::string events = event("response.created", {{"response", response()}});
    return events += event("response.in_progress", {{"response", response()}});
  }

  std::string add(size_t, const OutputEvent& output) override {
    if (output.kind == OutputEvent::Kind::tool_end) return close("completed");
    const bool call = output.kind >= OutputEvent::Kind::tool_begin;
    const auto kind = call ? OutputEvent::Kind::tool_begin : output.kind;
    std::string events;
    if (!open_ || items_.back().kind != kind || output.kind == OutputEvent::Kind::tool_begin) {
      events = close("completed");
      events += open(kind, output);
    }
    if (output.kind == OutputEvent::Kind::tool_begin) return events;
    items_.back().text += output.text;
    Members grown = {{"delta", Json(output.text)}};
    if (kind == OutputEvent::Kind::content) grown.push_back({"logprobs", Json(settle_logprobs())});
    return events + event(concat(stem(), ".delta"), part_members(std::move(grown)));
  }

  void take_tokens(size_t, TokenFacts facts) override {
    const Json logprobs = chat_logprobs(names_, facts.logprobs);
    const Json::Array& entries = logprobs.find("content")->as_array();
    waiting_logprobs_.insert(waiting_logprobs_.end(), entries.begin(), entries.end());
  }

  std::string end(size_t, const ChoiceEnd& end) override {
    const bool cut = end.finish_reason == "length" || end.finish_reason == "content_filter";
    const bool cancelled = end.finish_reason == "abort";
    status_ = cut ? "incomplete" : cancelled ? "cancelled" : "completed";
    if (cut)
      incomplete_ =
          json_object({{"reason", Json(end.finish_reason == "length" ? "max_output_tokens"
                                                                     : "content_filter")}});
    return close(cut || cancelled ? "incomplete" : "completed");
  }

  std::string finish(const AnswerTimes&) override {
    const TokenCounts& all = counts();
    usage_ =
        json_object({{"input_tokens", Json(all.prompt)},
                     {"input_tokens_details", json_object({{"cached_tokens", Json(all.cached)}})},
                     {"output_tokens", Json(all.completion)},
                     {"output_tokens_details", all.completion_details()},
                     {"total_tokens", Json(all.prompt + all.completion)}});
    return event(status_ == "completed" ? "response.completed" : "response.incomplete",
                 {{"response", response()}});
  }

  Json whole() const override { return response(); }
  std::string error(const ApiError& error) const override {
    return named_event("error", json_object({{"type", Json("error")},
                                             {"sequence_number", Json(number_)},
                                             {"code", Json(error.code)},
                                             {"message", message_json(error.message)},
                                             {"param", Json()}}));
  }

 private:
  using Members = std::vector<Json::Member>;

  std::string event(const std::string& name, Members members) {
    Json data = json_object({{"type", Json(name)}, {"sequence_number", Json(number_++)}});
    for (Json::Member& member : members) data.set(member.key, std::move(member.value));
    return named_event(name, data);
  }

  /// Those that waited for text, now of the open message.
  Json::Array settle_logprobs() {
    Json::Array& all = items_.back().logprobs;
    all.insert(all.end(), waiting_logprobs_.begin(), waiting_logprobs_.end());
    return std::exchange(waiting_logprobs_, {});
  }

  /// The place of the open item.
  Members item_members(Members more) const {
    Members members = {{"item_id", Json(items_.back().id)},
                       {"output_index", Json(static_cast<int64_t>(items_.size()) - 1)}};
    members.insert(members.end(), more.begin(), more.end());
    return members;
  }
  /// The same, and its one part if it has parts.
  Members part_members(Members more) const {
    Members members = item_members({});
    if (items_.back().kind != OutputEvent::Kind::tool_begin)
      members.push_back({"content_index", Json(0)});
    members.insert(members.end(), more.begin(), more.end());
    return members;
  }

  /// The name with which the events of the open item's growth begin.
  std::string stem() const {
    if (items_.back().kind == OutputEvent::Kind::reasoning) return "response.reasoning_text";
    return items_.back().kind == OutputEvent::Kind::content ? "response.output_text"
                                                            : "response.function_call_arguments";
  }

  static Json part_json(const Item& item, const std::string& text) {
    if (item.kind == OutputEvent::Kind::reasoning)
      return json_object({{"type", Json("reasoning_text")}, {"text", Json(text)}});
    return json_object({{"type", Json("output_text")},
                        {"text", Json(text)},
                        {"annotations", Json(Json::Array{})},
                        {"logprobs", Json(text.empty() ? Json::Array{} : item.logprobs)}});
  }

  /// `text`: what is said so far, empty when it opens.
  static Json item_json(const Item& item, const std::string& text) {
    Json::Array parts;
    const bool call = item.kind == OutputEvent::Kind::tool_begin;
    if (!call && !text.empty()) parts.push_back(part_json(item, text));
    if (item.kind == OutputEvent::Kind::reasoning)
      return json_object({{"id", Json(item.id)},
                          {"type", Json("reasoning")},
                          {"summary", Json(Json::Array{})},
                          {"content", Json(std::move(parts))},
                          {"encrypted_content", Json()},
                          {"status", Json(item.status)}});
    if (!call)
      return json_object({{"id", Json(item.id)},
                          {"type", Json("message")},
                          {"status", Json(item.status)},
                          {"role", Json("assistant")},
                          {"content", Json(std::move(parts))}});
    return json_object({{"id", Json(item.id)},
                        {"type", Json("function_call")},
                        {"status", Json(item.status)},
                        {"call_id", Json(item.call_id)},
                        {"name", Json(item.name)},
                        {"arguments", Json(text)}});
  }

  std::string open(OutputEvent::Kind kind, const OutputEvent& output) {
    Item item{.kind = kind};
    const bool call = kind == OutputEvent::Kind::tool_begin;
    item.id = random_id(call ? "fc_" : kind == OutputEvent::Kind::content ? "msg_" : "rs_");
    if (call) {
      item.call_id = random_id("call_");
      item.name = output.text;
    }
    items_.push_back(std::move(item));
    open_ = true;
    const Item& opened = items_.back();
    std::string events = event("response.output_item.added",
                               {{"output_index", Json(static_cast<int64_t>(items_.size()) - 1)},
                                {"item", item_json(opened, "")}});
    if (!call)
      events +=
          event("response.content_part.added", part_members({{"part", part_json(opened, "")}}));
    return events;
  }

  std::string close(const std::string& status) {
    if (!std::exchange(open_, false)) return {};
    Item& item = items_.back();
    item.status = status;
    const bool call = item.kind == OutputEvent::Kind::tool_begin;
    const bool message = item.kind == OutputEvent::Kind::content;
    if (message) settle_logprobs();
    Members said = {{call ? "arguments" : "text", Json(item.text)}};
    if (call) said.push_back({"name", Json(item.name)});
    if (message) said.push_back({"logprobs", Json(item.logprobs)});
    std::string events = event(concat(stem(), ".done"), part_members(std::move(said)));
    if (!call)
      events +=
          event("response.content_part.done", part_members({{"part", part_json(item, item.text)}}));
    return events + event("response.output_item.done",
                          {{"output_index", Json(static_cast<int64_t>(items_.size()) - 1)},
                           {"item", item_json(item, item.text)}});
  }

  Json response() const {
    Json::Array output;
    for (const Item& item : items_) output.push_back(item_json(item, item.text));
    Json json = json_object({{"id", Json(head_.id)},
                             {"object", Json("response")},
                             {"created_at", Json(head_.created)},
                             {"status", Json(status_)},
                             {"background", Json(false)},
                             {"error", Json()},
                             {"incomplete_details", incomplete_},
                             {"model", Json(head_.model)},
                             {"output", Json(std::move(output))},
                             {"previous_response_id", Json()},
                             {"store", Json(false)},
                             {"usage", usage_}});
    for (const Json::Member& member : echoed_.as_object()) json.set(member.key, member.value);
    return json;
  }

  AnswerHead head_;
  Json echoed_;
  TokenNames names_;
  std::vector<Item> items_;
  Json::Array waiting_logprobs_;  // log-probabilities of text that did not come yet
  bool open_ = false;             // the last of them
  int64_t number_ = 0;
  std::string status_ = "in_progress";
  Json incomplete_, usage_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_responses_writer(AnswerFrame frame) {
  return std::make_unique<ResponsesWriter>(std::move(frame));
}

}  // namespace nibble
