// Files of lines, whose ids are all different.
#include "eval/task_item.h"

#include <algorithm>
#include <unordered_set>

#include "base/file.h"

namespace nibble {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 30;
constexpr size_t kItemsMax = 1'000'000;

/// Adds the items of a text, whose ids may not be in `seen`.
Result<void> add_tasks(std::string_view text, std::string_view name,
                       std::unordered_set<std::string>& seen, std::vector<TaskItem>& items) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = concat(name, " line ", number);
    TaskItem item = TRY(parse_task_line(line, place));
    if (!seen.insert(item.id).second)
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat(place, ": id ", Json(item.id).dump()),
                         .expected = "an id of its own",
                         .found = "that of an earlier line"});
    if (items.size() == kItemsMax)
      return make_error(ErrorCode::invalid_argument,
                        {.what = place, .expected = concat("at most ", kItemsMax, " items")});
    items.push_back(std::move(item));
  }
  return {};
}

Error no_items(std::string_view name) {
  return make_error(
      ErrorCode::invalid_argument,
      {.what = std::string(name), .expected = "a line for each item", .found = "none"});
}

}  // namespace

Result<std::vector<TaskItem>> parse_tasks(std::string_view text, std::string_view name) {
  std::unordered_set<std::string> seen;
  std::vector<TaskItem> items;
  TRY(add_tasks(text, name, seen, items));
  if (items.empty()) return no_items(name);
  return items;
}

Result<std::vector<TaskItem>> read_tasks(std::span<const std::string> paths) {
  std::unordered_set<std::string> seen;
  std::vector<TaskItem> items;
  for (const std::string& path : paths) {
    const std::string text = TRY(read_text_file(path, kFileBytesMax));
    TRY(add_tasks(text, path, seen, items));
  }
  if (items.empty()) return no_items(paths.empty() ? "TASKS" : paths.front());
  return items;
}

}  // namespace nibble
