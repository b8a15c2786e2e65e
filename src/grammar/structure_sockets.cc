// Interrupted calls go on; a closed other end is an error and never a signal.
#include "grammar/structure_sockets.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace nibble {

namespace {

Error failed(std::string_view what) {
  return make_error(ErrorCode::io, {.what = what, .found = std::strerror(errno)});
}

Result<void> receive_bytes(int socket, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(socket, bytes, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("a socket of the structure worker");
    if (got == 0)
      return make_error(ErrorCode::io, {.what = "a socket of the structure worker",
                                        .found = "the end before the whole message"});
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return {};
}

/// One byte with room for one socket beside it.
struct Parcel {
  Parcel() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = room;
    header.msg_controllen = sizeof room;
  }
  char byte = 's';
  iovec part = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
};

}  // namespace

Result<void> send_bytes(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return failed("a socket of the structure worker");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

Result<void> send_message(int socket, std::string_view bytes) {
  const uint64_t size = bytes.size();
  TRY(send_bytes(socket, {reinterpret_cast<const char*>(&size), sizeof size}));
  return send_bytes(socket, bytes);
}

Result<std::string> receive_message(int socket, uint64_t bytes_max) {
  uint64_t size = 0;
  TRY(receive_bytes(socket, reinterpret_cast<char*>(&size), sizeof size));
  if (size > bytes_max)
    return make_error(ErrorCode::io, {.what = "a message to the structure worker",
                                      .expected = concat("at most ", bytes_max, " bytes"),
                                      .found = concat(size)});
  std::string bytes(size, '\0');
  TRY(receive_bytes(socket, bytes.data(), bytes.size()));
  return bytes;
}

Result<void> send_socket(int socket, int sent) {
  Parcel parcel;
  cmsghdr* const carried = CMSG_FIRSTHDR(&parcel.header);
  carried->cmsg_level = SOL_SOCKET;
  carried->cmsg_type = SCM_RIGHTS;
  carried->cmsg_len = CMSG_LEN(sizeof sent);
  std::memcpy(CMSG_DATA(carried), &sent, sizeof sent);
  while (::sendmsg(socket, &parcel.header, MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return failed("a socket of the structure worker");
  return {};
}

std::optional<int> receive_socket(int socket) {
  while (true) {
    Parcel parcel;
    const ssize_t got = ::recvmsg(socket, &parcel.header, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    const cmsghdr* const carried = CMSG_FIRSTHDR(&parcel.header);
    if (carried == nullptr || carried->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    std::memcpy(&received, CMSG_DATA(carried), sizeof received);
    return received;
  }
}

}  // namespace nibble
