// NFC as Hugging Face tokenizers applies it: Unicode 9, younger characters left alone and in place.
// Only stretches that can change are looked at; combining marks are ordered in n log n. Not a
// general normalizer: no NFD, NFKC.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nibble {

/// Start of the first stretch at or after `from` that NFC may change, or text.size() if `text`
/// is NFC from there on. Valid UTF-8. `from` must be 0 or a normalization boundary.
size_t find_nfc_active(std::string_view text, size_t from = 0);

/// The NFC form of valid UTF-8.
std::string normalize_nfc(std::string_view text);

/// Says if the character at `at` never combines with the text before it, so that both sides can be
/// normalized on their own. The end of the text is a boundary.
enum class NfcBoundary { no, yes };
NfcBoundary nfc_boundary(std::string_view text, size_t at);

}  // namespace nibble
