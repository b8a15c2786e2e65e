// nibble ls: the models of the Hugging Face cache.
#include "base/json.h"
#include "cli/hub/cached_models.h"
#include "cli/hub/hub_options.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"json", "", "", "print one JSON document instead"},
};

std::string refs_text(const CachedRevision& revision) {
  std::string text;
  for (const std::string& ref : revision.refs) text += concat(text.empty() ? "" : ", ", ref);
  return text;
}

std::string list_text(const std::vector<CachedModel>& models) {
  std::vector<std::vector<std::string>> rows = {
      {"model", "revision", "commit", "files", "size", "last used"}};
  uint64_t total = 0;
  for (const CachedModel& model : models) {
    total += model.bytes + model.incomplete_bytes;
    const std::string used = day_text(model.used_seconds);
    for (const CachedRevision& one : model.revisions)
      rows.push_back({model.repository, refs_text(one), one.commit.substr(0, 12), concat(one.files),
                      size_text(one.bytes), used});
    if (model.incomplete_bytes > 0 || model.revisions.empty())
      rows.push_back({model.repository, "", "", "", size_text(model.incomplete_bytes),
                      "unfinished: `nibble pull` goes on"});
  }
  return table_text(rows, {3, 4}) +
         concat(models.size(), " models, ", size_text(total), " in ", hub_cache().string(), "\n");
}

Json list_json(const std::vector<CachedModel>& models) {
  Json list{Json::Array{}};
  for (const CachedModel& model : models) {
    Json revisions{Json::Array{}};
    for (const CachedRevision& one : model.revisions) {
      Json refs{Json::Array{}};
      for (const std::string& ref : one.refs) refs.push_back(ref);
      revisions.push_back(json_object({{"commit", one.commit},
                                       {"refs", std::move(refs)},
                                       {"files", one.files},
                                       {"bytes", one.bytes},
                                       {"changed", one.changed_seconds}}));
    }
    list.push_back(json_object({{"repository", model.repository},
                                {"folder", model.home.string()},
                                {"bytes", model.bytes},
                                {"incomplete_bytes", model.incomplete_bytes},
                                {"used", model.used_seconds},
                                {"revisions", std::move(revisions)}}));
  }
  return json_object({{"cache", hub_cache().string()}, {"models", std::move(list)}});
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const std::vector<CachedModel> models = TRY(scan_cache(hub_cache()));
  TRY(terminal.out(arguments.enabled("json") ? list_json(models).dump_pretty()
                                             : list_text(models)));
  return kExitOk;
}

}  // namespace

const Verb kLsVerb = {.name = "ls",
                      .positionals = "",
                      .summary = "Lists the models of the Hugging Face cache",
                      .options = kOptions,
                      .run = run};

}  // namespace nibble
