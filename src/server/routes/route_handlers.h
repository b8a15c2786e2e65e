// The functions that answer routes: one for each row of routes.cc, or one for several rows that
// differ by their path alone. All run on the server's thread and must not block.
#pragma once

#include "server/routes/routes.h"
#include "server/routes/text_routes.h"

namespace nibble {

void answer_health(ServerState& server, Call call);
void answer_live(ServerState& server, Call call);
void answer_version(ServerState& server, Call call);
void answer_models(ServerState& server, Call call);
void answer_one_model(ServerState& server, Call call);
void answer_load(ServerState& server, Call call);
void answer_stats(ServerState& server, Call call);
/// The page, its files, the documents of the API.
void answer_web(ServerState& server, Call call);
void answer_metrics(ServerState& server, Call call);
void answer_tokenizer_info(ServerState& server, Call call);
void answer_embeddings(ServerState& server, Call call);
void answer_sleep(ServerState& server, Call call);
void answer_wake_up(ServerState& server, Call call);
void answer_is_sleeping(ServerState& server, Call call);
/// Counting, tokenizing, rendering: text_routes.h, off the server's thread.
void answer_text_by(OpenText open, ServerState& server, Call call);
template <OpenText kOpen>
void answer_text(ServerState& server, Call call) {
  answer_text_by(kOpen, server, std::move(call));
}
/// Chats, completions, messages, responses: generation_route.cc.
void answer_generation(ServerState& server, Call call);

/// 429: a queue of this server is full.
HttpResponse too_busy(Api api);

}  // namespace nibble
