// Reading the server's flags.
#include "cli/serving/server_options.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

#include "cli/options/flag_errors.h"
#include "cli/serving/answer_options.h"
#include "cli/serving/client_setup.h"
#include "server/task_thread.h"

namespace nibble {

namespace {

/// It has its own thread: a reader of standard error that stops must not stop the server. Lines
/// beyond the queue are counted and reported once there is room.
std::function<void(std::string_view)> line_writer(Terminal& terminal) {
  constexpr size_t kLinesMax = 4096;
  auto writer = std::make_shared<TaskThread>(kLinesMax);
  auto lost = std::make_shared<std::atomic<int64_t>>(0);
  return [&terminal, writer, lost](std::string_view line) {
    const bool queued = writer->post([&terminal, lost, text = concat(line, "\n")] {
      if (const int64_t count = lost->exchange(0); count > 0)
        terminal.err(concat(count, " log lines lost: standard error was not read\n"));
      terminal.err(text);
    });
    if (!queued) ++*lost;
  };
}

Result<TlsFiles> read_tls(const Arguments& arguments) {
  const TlsFiles files = {.certificate = arguments.text("ssl-certfile").value_or(""),
                          .key = arguments.text("ssl-keyfile").value_or(""),
                          .ca_certs = arguments.text("ssl-ca-certs").value_or("")};
  const bool alone = !files.ca_certs.empty() && files.certificate.empty();
  if (files.certificate.empty() == files.key.empty() && !alone) return files;
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--ssl-certfile, --ssl-keyfile, --ssl-ca-certs",
                     .expected = "certificate and key, the third only beside both",
                     .found = files.certificate.empty() ? "no certificate" : "no key"});
}

/// vLLM takes a JSON list.
Result<std::vector<std::string>> read_origins(const std::string& text) {
  std::vector<std::string> origins;
  if (!text.starts_with('[')) {
    origins = split_list(text);
  } else {
    const Json list = TRY(parse_json(text, "--allowed-origins"));
    for (const Json& item : list.as_array())
      origins.push_back(item.is_string() ? item.as_string() : "");
  }
  for (const std::string& origin : origins)
    if (origin != "*" && origin.find("://") == std::string::npos)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "--allowed-origins",
                         .expected = "origins such as https://example.org, or *",
                         .found = concat("\"", origin, "\"")});
  return origins;
}

/// Names as a Host header has them: no scheme, no path.
Result<std::vector<std::string>> read_hosts(const std::string& text) {
  std::vector<std::string> hosts = split_list(text);
  for (const std::string& host : hosts)
    if (host.find('/') != std::string::npos)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "--allowed-hosts",
                         .expected = "names such as nibble.lan or nibble.lan:8000, or *",
                         .found = concat("\"", host, "\"")});
  return hosts;
}

Result<std::vector<AddressRange>> read_proxies(const std::string& text) {
  std::vector<AddressRange> ranges;
  for (const std::string& item : split_list(text)) {
    auto range = AddressRange::parse(item);
    if (!range.ok())
      return Error{range.error().code, concat("--trusted-proxies: ", range.error().message)};
    ranges.push_back(std::move(range).value());
  }
  return ranges;
}

double bytes_read() {
  std::ifstream counters("/proc/self/io");  // "rchar: 123"
  std::string name;
  double value = 0.0;
  counters >> name >> value;
  return value;
}

}  // namespace

void LoadingProgress::begin(const std::filesystem::path& folder) {
  double bytes = 1.0;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored))
    if (file.path().extension() == ".safetensors")
      bytes += static_cast<double>(file.file_size(ignored));
  bytes_before_ = bytes_read();
  bytes_ = bytes;
}

double LoadingProgress::part() const {
  const double bytes = bytes_;
  return bytes > 0.0 ? (bytes_read() - bytes_before_) / bytes : 0.0;
}

namespace {

/// Those of the option, else vLLM's variable: who set it expects a locked door. Errors: an empty
/// key, which a variable of a script that is not set would give.
Result<std::vector<std::string>> read_keys(const Arguments& arguments) {
  const char* vllm_key = std::getenv("VLLM_API_KEY");
  const std::optional<std::string> given = arguments.text("api-key");
  if (!given && vllm_key == nullptr) return std::vector<std::string>();
  const std::string text = given.value_or(vllm_key != nullptr ? vllm_key : "");
  std::vector<std::string> keys = split_list(text);
  if (keys.size() == static_cast<size_t>(std::ranges::count(text, ',')) + 1) return keys;
  return make_error(ErrorCode::invalid_argument,
                    {.what = given ? "--api-key" : "VLLM_API_KEY",
                     .expected = "keys of at least one character, with commas between them",
                     .found = "an empty key",
                     .advice = "leave it out to serve without a key"});
}

Result<std::filesystem::path> read_key_file(const Arguments& arguments) {
  std::filesystem::path file = arguments.text("api-key-file").value_or("");
  if (file.empty() || std::ifstream(file)) return file;
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "--api-key-file", .expected = "a file that can be read", .found = file.string()});
}

}  // namespace

Result<ServerOptions> read_server_flags(const Arguments& arguments) {
  FlagErrors errors;
  ServerOptions options;
  options.http.host = *arguments.text("host");
  if (options.http.host == "localhost") options.http.host = "127.0.0.1";
  options.http.port = static_cast<uint16_t>(errors.take(arguments.integer("port", 0, 65535)));
  for (const LimitFlag& limit : kLimitFlags)
    limit.set(options, errors.take(arguments.integer(limit.option.name, limit.least, limit.most)));
  options.http.uds = arguments.text("uds").value_or("");
  options.http.admin_uds = arguments.text("admin-socket").value_or("");
  options.http.tls = errors.take(read_tls(arguments));
  options.allowed_origins =
      errors.take(read_origins(arguments.text("allowed-origins").value_or("")));
  options.allowed_hosts = errors.take(read_hosts(arguments.text("allowed-hosts").value_or("")));
  options.http.trusted_proxies =
      errors.take(read_proxies(arguments.text("trusted-proxies").value_or("")));
  options.api_keys = errors.take(read_keys(arguments));
  options.api_key_file = errors.take(read_key_file(arguments));
  options.response_store = errors.take(read_response_store(arguments));
  if (!arguments.enabled("web")) options.web = WebPage::off;
  if (!arguments.enabled("list-profiles")) options.list_profiles = ProfileListing::off;
  if (arguments.enabled("enable-admin-routes")) options.admin_routes = AdminRoutes::on_every_socket;
  options.sleep_idle =
      std::chrono::seconds(errors.take(arguments.integer("sleep-idle", 0, 86400 * 365)));
  options.drain_wait =
      std::chrono::seconds(errors.take(arguments.integer("shutdown-timeout", 0, 86400)));
  const std::string format = errors.take(arguments.choice("log-format", {"text", "json"}));
  options.log_format = format == "json" ? LogFormat::json : LogFormat::text;
  if (arguments.enabled("log-prompts")) options.log_prompts = PromptLog::yes;
  TRY(errors.result());
  return options;
}

Result<ServerOptions> read_server_options(const Arguments& arguments, Terminal& terminal) {
  ServerOptions options = TRY(read_server_flags(arguments));
  options.structure_worker = terminal.structure_worker();
  options.log = line_writer(terminal);
  if (arguments.enabled("log-requests") && !arguments.enabled("disable-log-requests"))
    options.request_log = options.log;
  options.filter = TRY(read_filters(arguments, options.log));
  return options;
}

}  // namespace nibble
