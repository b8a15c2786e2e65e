// Flags of `nibble serve` about requests and answers of every client: room for the answer, names of
// fields.
#pragma once

#include "cli/verb.h"
#include "server/filters/filter_panel.h"
#include "server/request/answer_policy.h"
#include "server/routes/response_store.h"

namespace nibble {

inline constexpr Option kAnswerReserveOption = {
    "answer-reserve", "N", "1024",
    "tokens that thinking leaves for the answer, of max_tokens at most a quarter, or half with "
    "tools or a structure; 0: none"};

inline constexpr Option kStrictFieldsOption = {
    "strict-fields", "", "false", "an unknown field of a request is refused, not ignored"};
inline constexpr Option kReasoningFieldOption = {"reasoning-field",
                                                 "both|reasoning|reasoning_content", "both",
                                                 "field that has the thinking in chat answers"};

inline constexpr Option kResponseStoreOption = {
    "response-store", "N", "0",
    "answers of /v1/responses kept in memory, to be continued by their ids; 0: none"};
inline constexpr Option kResponseStoreBytesOption = {
    "response-store-max-bytes", "N", "256M", "bytes of all answers that are kept; the oldest go"};

inline constexpr Option kFilterOption = {"filter", "SPEC", "",
                                         "judges prompts and answers: regex:FILE, exec:PROGRAM, "
                                         "http:URL (several: separated by commas)"};
inline constexpr Option kFilterCaOption = {"filter-ca", "FILE", "",
                                           "certificates that https filters are trusted by; else "
                                           "those of the system"};
inline constexpr Option kFilterFailOption = {"filter-fail", "open|closed", "closed",
                                             "verdict of a slow or dead filter: closed refuses"};
inline constexpr Option kFilterTimeoutOption = {"filter-timeout", "SECONDS", "5",
                                                "longest wait for a filter's verdict"};
inline constexpr Option kFilterWindowOption = {
    "filter-window", "BYTES", "256",
    "bytes of an answer held back: the longest text that a filter can catch whole"};
inline constexpr Option kFilterReasoningOption = {"filter-reasoning", "", "false",
                                                  "filters judge thinking too"};

/// Errors: one line per flag with a value it cannot have.
Result<AnswerPolicy> read_answer_policy(const Arguments& arguments);
Result<ResponseStoreLimits> read_response_store(const Arguments& arguments);
/// Reads patterns and starts programs. `report`: see FilterReport.
Result<FilterOptions> read_filters(const Arguments& arguments, const FilterReport& report);

}  // namespace nibble
