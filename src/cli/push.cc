// nibble push: a checked folder to a repository of the hub, in one commit, after showing what is
// sent and asking.
#include <iostream>

#include "base/json.h"
#include "cli/hub/cached_models.h"
#include "cli/hub/hub_options.h"
#include "cli/hub/hub_reporter.h"
#include "cli/options/folders.h"
#include "hub/folder_upload.h"
#include "hub/hub_name.h"
#include "quantize/verify/verify.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr auto kOptions = std::to_array<Option>({
    {"revision", "BRANCH", "main", "the branch that gets the commit; it must be there"},
    {"message", "TEXT", "Upload with nibble", "of the commit"},
    {"public", "", "", "a repository that is made anew is public; else it is private"},
    {"dry-run", "", "", "check the folder, list what would be sent, and stop"},
    {"yes", "", "", "do not ask"},
    kEndpointOption,
    kTokenOption,
});

/// Errors: corrupt for a checkpoint that is not sound.
Result<void> check_sound(const fs::path& folder, Terminal& terminal) {
  Progress progress(terminal, {.label = "verify", .unit = "MB", .unit_scale = 1e6});
  VerifyOptions options;
  options.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  const VerifyReport report = TRY(verify_checkpoint(folder.string(), options));
  progress.finish();
  if (report.sound()) return {};
  return make_error(ErrorCode::corrupt,
                    {.what = folder.string(),
                     .expected = "a sound checkpoint",
                     .found = concat(report.count(Severity::error), " errors"),
                     .advice = concat("`nibble verify ", folder.string(), "` lists them")});
}

Result<UploadTarget> target_of(const Arguments& arguments) {
  const std::string& word = arguments.positional(1);
  const auto name = parse_hub_name(word);
  if (!name || !name->revision.empty())
    return make_error(ErrorCode::invalid_argument, {.what = concat("repository \"", word, "\""),
                                                    .expected = "ORG/NAME, as on the hub",
                                                    .found = "something else"});
  UploadTarget target{.repository = name->repository,
                      .revision = *arguments.text("revision"),
                      .message = *arguments.text("message")};
  TRY(check_hub_revision({.repository = target.repository, .revision = target.revision}));
  return target;
}

std::string list_text(const std::vector<UploadFile>& files) {
  std::vector<std::vector<std::string>> rows;
  uint64_t total = 0;
  for (const UploadFile& file : files) {
    std::string way = file.way == UploadWay::lfs ? "storage" : "commit";
    if (file.way == UploadWay::ignored) way = "ignored by the repository's .gitignore";
    rows.push_back({concat(file.bytes), file.path, std::move(way)});
    if (file.way != UploadWay::ignored) total += file.bytes;
  }
  return table_text(rows, {0}) + concat(files.size(), " files, ", size_text(total), "\n");
}

Result<void> ask(const Arguments& arguments, Terminal& terminal) {
  if (arguments.enabled("yes")) return {};
  if (terminal.input_watcher() != Watcher::person)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "nobody can be asked here", .advice = "say --yes to send it"});
  terminal.err("send it? [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return Error{ErrorCode::cancelled, "nothing was sent"};
}

Result<HubSession> open_session(const Arguments& arguments, HubReporter& reporter,
                                Terminal& terminal) {
  HubSettings settings = TRY(hub_settings(arguments));
  terminal.err(token_warning(settings));
  settings.stop = [] { return interrupted(); };
  settings.tell = [&](const std::string& text) { reporter.line(text); };
  if (settings.token.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = "push",
                       .expected = "an access token that may write",
                       .found = "none",
                       .advice = "HF_TOKEN, --token or `hf auth login` gives it"});
  return HubSession::open(std::move(settings));
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const fs::path folder = TRY(checkpoint_folder(arguments.positional(0), terminal));
  const UploadTarget target = TRY(target_of(arguments));
  const InterruptFlag flag;
  HubReporter reporter(terminal, "sending");
  const HubSession session = TRY(open_session(arguments, reporter, terminal));
  std::vector<UploadFile> files = TRY(list_upload(folder));
  TRY(check_sound(folder, terminal));
  const bool exists = TRY(has_repository(session, target.repository));
  if (exists) TRY(choose_ways(session, folder, target, files));
  const Visibility visibility =
      arguments.enabled("public") ? Visibility::public_repository : Visibility::private_repository;
  const std::string_view made = exists ? ""
                                : visibility == Visibility::public_repository
                                    ? ", a new public one"
                                    : ", a new private one";
  const std::string what = concat(list_text(files), "to ", session.url(target.repository),
                                  ", branch ", target.revision, made, "\n");
  if (arguments.enabled("dry-run")) {
    TRY(terminal.out(what));
    return kExitOk;
  }
  terminal.err(what);
  TRY(ask(arguments, terminal));
  if (!exists) {
    TRY(make_repository(session, target.repository, visibility));
    TRY(choose_ways(session, folder, target, files));
  }
  const UploadProgress progress = [&](uint64_t done, uint64_t total) {
    reporter.progress(done, total);
  };
  const CommitReply commit = TRY(upload(session, folder, target, files, progress));
  reporter.finish();
  TRY(terminal.out(concat(commit.url.empty() ? commit.commit : commit.url, "\n")));
  return kExitOk;
}

}  // namespace

const Verb kPushVerb = {.name = "push",
                        .positionals = "DIR ORG/NAME",
                        .summary = "Checks a checkpoint and sends it to the Hugging Face Hub",
                        .options = kOptions,
                        .run = run};

}  // namespace nibble
