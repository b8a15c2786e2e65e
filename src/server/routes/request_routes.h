// Routes about requests that run: ending one by its id.
#pragma once

#include "server/routes/routes.h"

namespace nibble {

/// POST /v1/requests/ID/cancel, /v1/responses/ID/cancel: ends what the same key asked for under
/// this id with what it has so far. 404 where nothing of that id runs.
void answer_cancel(ServerState& server, Call call);
/// POST /cancel_all: every client's.
void answer_cancel_all(ServerState& server, Call call);

}  // namespace nibble
