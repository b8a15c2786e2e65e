// OutputFilter: says whether a text may pass. One interface, three kinds: patterns of a file, a
// program, a URL. What asks them, with a time limit, is filter_panel.h; what holds answers back
// until they have spoken is held_answer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

enum class FilterPlace : uint8_t { prompt, content, reasoning, arguments };
/// failed: the filter did not answer, or not in its language.
enum class FilterVerdict : uint8_t { pass, hit, failed };

std::string_view name_of(FilterPlace place);

/// A whole prompt, or a window of a growing answer: it may begin and end within a word.
struct FilterQuestion {
  FilterPlace place = FilterPlace::content;
  std::string text;

  /// {"id","place","text"}, what programs and URLs are asked.
  std::string json(uint64_t id) const;
};

class OutputFilter {
 public:
  using Question = std::shared_ptr<const FilterQuestion>;
  using Answer = std::function<void(FilterVerdict)>;

  virtual ~OutputFilter() = default;
  /// "regex:FILE", as the operator wrote it.
  virtual std::string_view name() const = 0;
  /// `answer` is called once, from any thread, perhaps before ask() returns. Any thread.
  virtual void ask(Question question, Answer answer) = 0;
};

/// One line about a filter in trouble, without the text. Any thread.
using FilterReport = std::function<void(std::string_view)>;

/// `spec`: regex:FILE, exec:PROGRAM [ARGUMENT...] or http://HOST[:PORT]/PATH, also https and also
/// written http:URL. `ca`: see make_http_filter(). Errors: another word; a file that cannot be read
/// or compiled; a program that cannot be started; a URL that is none.
Result<std::unique_ptr<OutputFilter>> make_filter(std::string_view spec, FilterReport report,
                                                  const std::filesystem::path& ca = {});

Result<std::unique_ptr<OutputFilter>> make_regex_filter(std::string_view file);
Result<std::unique_ptr<OutputFilter>> make_exec_filter(std::string_view command,
                                                       FilterReport report);
/// https: the service shows a certificate for its host, signed by one of `ca`, a PEM file, or by
/// one the system trusts.
Result<std::unique_ptr<OutputFilter>> make_http_filter(std::string_view url, FilterReport report,
                                                       const std::filesystem::path& ca = {});
/// Errors: no certificates in PEM form.
Result<void> check_filter_ca(const std::filesystem::path& ca);

/// {"verdict":"pass"} or {"verdict":"hit"}, with other members as they like; else failed. `id`: the
/// member of this name, if there is one.
FilterVerdict verdict_in(std::string_view json, uint64_t* id = nullptr);

}  // namespace nibble
