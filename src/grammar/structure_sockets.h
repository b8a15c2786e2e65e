// Messages and sockets through Unix sockets, blocking. Private to this module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

/// Errors: io.
Result<void> send_bytes(int socket, std::string_view bytes);
/// The bytes after their count.
Result<void> send_message(int socket, std::string_view bytes);
/// Errors: io, where the other end closes before it is whole, or it has more than `bytes_max`.
Result<std::string> receive_message(int socket, uint64_t bytes_max);

/// Errors: io.
Result<void> send_socket(int socket, int sent);
/// Empty once the other end is closed.
std::optional<int> receive_socket(int socket);

}  // namespace nibble
