// The page, its files and the documents of the API. Open: a browser that opens an address sends no
// key, and they hold nothing of this server.
#include "server/routes/route_handlers.h"
#include "server/server_state.h"
#include "server/web/web_assets.h"

namespace nibble {

void answer_web(ServerState& server, Call call) {
  const EmbeddedFile* file =
      server.options.web == WebPage::served ? web_file(call.request.path) : nullptr;
  if (file != nullptr)
    return call.exchange->respond(web_response(*file, call.request.header("if-none-match")));
  call.exchange->respond(
      no_such_path(std::string_view(call.request.path).substr(0, 100)).response());
}

}  // namespace nibble
