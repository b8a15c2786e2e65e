// Asks and reads, as many items at once as the model takes.
#include "cli/evaluating/answered.h"

namespace nibble {
namespace {

std::vector<int32_t> ids_of(const Json* list) {
  std::vector<int32_t> ids;
  if (list == nullptr || !list->is_array()) return ids;
  for (const Json& each : list->as_array())
    if (each.is_int()) ids.push_back(static_cast<int32_t>(each.as_int()));
  return ids;
}

Result<Answered> read_answer(const TaskItem& item, const AskedModel::Reply& reply) {
  constexpr int kOk = 200;
  if (reply.status != kOk)
    return make_error(ErrorCode::unsupported,
                      {.what = concat("item ", item.id), .found = refusal_of(reply)});
  Answered answered{.answer = TRY(parse_task_answer(item, reply.body))};
  const Json json = TRY(parse_json(reply.body, "the server's answer", {.depth_max = 80}));
  answered.prompt_ids = ids_of(json.find("prompt_token_ids"));
  answered.answer_ids = ids_of(json.find("choices")->as_array().front().find("token_ids"));
  return answered;
}

}  // namespace

Result<std::vector<Answered>> answers_of(AskedModel& model, const std::vector<TaskItem>& items,
                                         const AskingWords& words, Terminal& terminal) {
  std::vector<Answered> answers(items.size());
  Progress progress(terminal, {.label = words.name, .unit = words.unit});
  size_t next = 0, done = 0;
  while (done < items.size()) {
    for (; next < items.size() && static_cast<int64_t>(next - done) < model.requests_max();
         ++next) {
      TaskRequest request = task_request(items[next], {.model = model.model()});
      request.body.set("return_token_ids", Json(true));
      model.ask(next, request);
    }
    for (const AskedModel::Reply& reply : model.take()) {
      answers[reply.number] = TRY(read_answer(items[reply.number], reply));
      ++done;
    }
    TRY(model.failure());
    progress.update(done, items.size());
    if (interrupted()) return Error{ErrorCode::cancelled, "interrupted"};
  }
  progress.finish();
  return answers;
}

}  // namespace nibble
