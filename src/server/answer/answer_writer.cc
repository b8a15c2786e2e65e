// The table of writers, and what they share.
#include "server/answer/answer_writer.h"

#include <algorithm>

namespace nibble {

namespace {

struct WriterRow {
  Api api;
  std::string_view id_prefix;
  std::unique_ptr<AnswerWriter> (*make)(AnswerFrame frame);
};
constexpr WriterRow kWriters[] = {
    {Api::chat, "chatcmpl-", make_chat_writer},
    {Api::completions, "cmpl-", make_completion_writer},
    {Api::messages, "msg_", make_messages_writer},
    {Api::responses, "resp_", make_responses_writer},
};

const WriterRow& row_of(Api api) {
  const auto* row = std::ranges::find(kWriters, api, &WriterRow::api);
  CHECK(row != std::end(kWriters), "no writer of API ", static_cast<int>(api));
  return *row;
}

}  // namespace

std::unique_ptr<AnswerWriter> make_answer_writer(AnswerFrame frame) {
  return row_of(frame.request.api).make(std::move(frame));
}

std::string_view answer_id_prefix(Api api) { return row_of(api).id_prefix; }

std::string data_event(const Json& data) { return concat("data: ", data.dump(), "\n\n"); }

std::string named_event(std::string_view name, const Json& data) {
  return concat("event: ", name, "\n", data_event(data));
}

}  // namespace nibble
