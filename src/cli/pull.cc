// nibble pull: a model from the Hugging Face Hub into the cache that huggingface_hub uses too.
#include <csignal>

#include "base/json.h"
#include "cli/hub/hub_options.h"
#include "cli/hub/hub_reporter.h"
#include "cli/hub/pull_advice.h"
#include "cli/options/folders.h"
#include "hub/remote_file.h"
#include "hub/snapshot_download.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr auto kOptions = std::to_array<Option>({
    kRevisionOption,
    {"include", "GLOB", "", "only files that match: * and ? match / too, NAME/ is all below it", "",
     OptionForm::several},
    {"exclude", "GLOB", "", "no files that match", "", OptionForm::several},
    {"jobs", "N", "8", "connections at once"},
    {"dry-run", "", "", "list what would be fetched, and stop"},
    {"offline", "", "", "look into the cache alone, as HF_HUB_OFFLINE=1 does"},
    {"json", "", "", "print one JSON document instead of the folder"},
    kEndpointOption,
    kTokenOption,
});

constexpr std::string_view kPapers = "config.json";

std::vector<std::string> patterns(const Arguments& arguments, std::string_view option) {
  std::vector<std::string> out;
  const std::string text = arguments.text(option).value_or("");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

FileFilter filter_of(const Arguments& arguments) {
  return {.include = patterns(arguments, "include"), .exclude = patterns(arguments, "exclude")};
}

Result<int> pull_offline(const HubName& name, Terminal& terminal) {
  const fs::path folder = TRY(find_hub_folder(hub_cache(), name, SnapshotNeeds::weights));
  terminal.err(concat(name.repository, " is in the cache; nothing was asked of the hub\n"));
  TRY(terminal.out(folder.string() + "\n"));
  return kExitOk;
}

std::string_view state_name(const FileWork& work) {
  if (work.state == FileWork::State::there) return "there";
  if (work.state == FileWork::State::link) return "here already";
  return work.kept_bytes > 0 ? "to go on" : "to fetch";
}

Json plan_json(const DownloadPlan& plan, const fs::path& folder) {
  Json files{Json::Array{}};
  for (const FileWork& work : plan.files)
    files.push_back(json_object({{"path", work.file.path},
                                 {"bytes", work.file.bytes},
                                 {"state", state_name(work)},
                                 {"kept_bytes", work.kept_bytes}}));
  return json_object({{"repository", plan.revision.repository},
                      {"revision", plan.revision.revision},
                      {"commit", plan.revision.commit},
                      {"folder", folder.string()},
                      {"fetch_bytes", plan.fetch_bytes()},
                      {"files", std::move(files)}});
}

std::string plan_text(const DownloadPlan& plan) {
  std::string text;
  for (const FileWork& work : plan.files) {
    std::string bytes = concat(work.file.bytes);
    bytes.insert(0, 15 - std::min<size_t>(15, bytes.size()), ' ');
    std::string state(state_name(work));
    state.resize(14, ' ');
    text += concat(bytes, "  ", state, work.file.path, "\n");
  }
  return text;
}

/// The text of config.json, from the cache or the hub; empty: the model has none.
Result<std::string> read_config(const HubSession& session, const DownloadPlan& plan,
                                const fs::path& snapshot) {
  constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
  for (const HubFile& file : plan.revision.files) {
    if (file.path != kPapers) continue;
    if (auto known = read_text_file(snapshot / kPapers, kConfigBytesMax); known.ok()) return known;
    HubConnection connection;
    return read_remote_file(session, connection, plan.revision, file, kConfigBytesMax);
  }
  return std::string();
}

/// The questions before the first weight: room on the disk, a card that serves it.
Result<void> ask_machine(const HubSession& session, const DownloadPlan& plan,
                         const fs::path& snapshot, Terminal& terminal) {
  uint64_t needed = 0;
  for (const FileWork& work : plan.files)
    if (work.state == FileWork::State::missing)
      needed += work.place.bytes - std::min(work.kept_bytes, work.place.bytes);
  if (needed == 0) return {};
  const std::string config = TRY(read_config(session, plan, snapshot));
  if (!config.empty()) terminal.err(machine_advice(config, terminal));
  return check_room(hub_cache(), needed);
}

Error nothing_left(const DownloadPlan& plan) {
  return make_error(
      ErrorCode::not_found,
      {.what = concat("files of ", plan.revision.repository, " that --include and --exclude leave"),
       .expected = concat("some of its ", plan.revision.files.size()),
       .found = "none"});
}

Result<int> pull(const Arguments& arguments, const HubName& name, Terminal& terminal) {
  HubSettings settings = TRY(hub_settings(arguments));
  terminal.err(token_warning(settings));
  HubReporter reporter(terminal, "fetching");
  const InterruptFlag flag;
  settings.stop = [] { return interrupted(); };
  settings.tell = [&](const std::string& text) { reporter.line(text); };
  const HubSession session = TRY(HubSession::open(std::move(settings)));
  const int jobs = static_cast<int>(TRY(arguments.integer("jobs", 1, 64)));
  const fs::path cache = hub_cache();
  HubRevision revision = TRY(find_revision(session, cache, name));
  const DownloadPlan plan =
      TRY(plan_download(session, cache, std::move(revision), filter_of(arguments), jobs));
  if (plan.files.empty()) return nothing_left(plan);
  const fs::path snapshot =
      cache / hub_folder_name(name.repository) / "snapshots" / plan.revision.commit;
  const bool dry = arguments.enabled("dry-run");
  const bool as_json = arguments.enabled("json");
  TRY(ask_machine(session, plan, snapshot, terminal));
  terminal.err(concat(name.repository, " at ", plan.revision.commit, ": ", plan.files.size(),
                      " files, ", plan.fetch_bytes(), " bytes to fetch\n"));
  const DownloadWatch watch{
      .progress = [&](uint64_t done, uint64_t total) { reporter.progress(done, total); }};
  if (!dry) TRY(download(session, cache, plan, jobs, watch));
  reporter.finish();
  const std::string out = dry ? plan_text(plan) : snapshot.string() + "\n";
  TRY(terminal.out(as_json ? plan_json(plan, snapshot).dump_pretty() : out));
  return kExitOk;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes becomes an error of writing
  const HubName name = TRY(hub_model_of(arguments, arguments.positional(0)));
  if (hub_is_offline() || arguments.enabled("offline")) return pull_offline(name, terminal);
  return pull(arguments, name, terminal);
}

Result<void> check(const Arguments& arguments) {
  TRY(arguments.integer("jobs", 1, 64));
  return {};
}

}  // namespace

const Verb kPullVerb = {.name = "pull",
                        .positionals = "ORG/NAME",
                        .summary = "Fetches a model from the Hugging Face Hub into its cache",
                        .options = kOptions,
                        .run = run,
                        .check = check};

}  // namespace nibble
