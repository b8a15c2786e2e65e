// The report of a load test as text for a terminal, as Markdown, and as JSON. The HTML page is
// load_page.h.
#pragma once

#include <string>
#include <vector>

#include "bench/load_series.h"

namespace nibble {

/// The table of a step: a row of headings, then one row for each figure that any round has.
std::vector<std::vector<std::string>> step_rows(const LoadReport& report, const LoadStep& step);
/// The lines below it: answers, errors, outliers, the client's own share, cost.
std::vector<std::string> step_notes(const LoadReport& report, const LoadStep& step);
/// "machine: ..", "load: ..": the facts above all tables.
std::vector<std::string> head_lines(const LoadReport& report);

std::string load_text(const LoadReport& report);
std::string load_markdown(const LoadReport& report);
/// Machine, settings and the spread of each figure by step; `runs` are vLLM's records of each run.
Json load_json(const LoadReport& report, Json::Array runs);

/// A Markdown table; the first row is the heading.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace nibble
