#include "kvstore/transfer/shm_transport.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/id128.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvstore/kv_block_pool.h"

namespace baton::kvstore {
namespace {

constexpr size_t kNonceBytes = 32;
// A peer sends its nonce right after it connected; who dawdles keeps others waiting.
constexpr absl::Duration kNonceTimeout = absl::Milliseconds(250);
constexpr int kListenBacklog = 64;

// Closes a descriptor at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  const int number_;
};

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

struct AbstractAddress {
  sockaddr_un address = {};
  socklen_t length = 0;
};

// INVALID_ARGUMENT: too long. An abstract name starts with a NUL and is in no file system.
absl::StatusOr<AbstractAddress> AddressOf(const std::string& name) {
  AbstractAddress result;
  result.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof result.address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("a socket name has ", name.size(),
                                                   " bytes, must have 1 to ",
                                                   sizeof result.address.sun_path - 1));
  }
  memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

void SetTimeouts(int socket, absl::Duration timeout) {
  const timeval value = absl::ToTimeval(timeout);
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof value);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value);
}

bool IsSameUser(int connection) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == geteuid();
}

// One byte with a descriptor beside it.
bool SendDescriptor(int connection, int descriptor) {
  char byte = 'A';
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return sendmsg(connection, &message, MSG_NOSIGNAL) == 1;
}

// -1: none came.
int ReceiveDescriptor(int connection) {
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int descriptor = -1;
  memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

// Keeps loads of the block's bytes before what follows. ThreadSanitizer knows no fences; it sees no other process either.
void LoadFence() {
#ifdef __SANITIZE_THREAD__
  std::atomic_signal_fence(std::memory_order_acquire);
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

// A source's arena in our address space, for reading.
class MappedArena final : public RangeReader {
 public:
  MappedArena(const kernels::PagedKvView& view, const KvArenaExtent& extent)
      : view_(view),
        file_bytes_(extent.file_bytes),
        generations_(reinterpret_cast<const std::atomic<uint64_t>*>(view.base +
                                                                    extent.generations_begin)) {}
  ~MappedArena() override { CHECK(munmap(view_.base, file_bytes_) == 0); }
  MappedArena(const MappedArena&) = delete;
  MappedArena& operator=(const MappedArena&) = delete;

  absl::Status Read(const AnnounceRange& range, const kernels::PagedKvView& into,
                    absl::Span<const KvBlockId> destination) override {
    CHECK_EQ(range.blocks.size(), destination.size());
    for (const KvBlockRef& block : range.blocks) {
      if (static_cast<uint32_t>(block.id) < view_.block_count) continue;
      return absl::InvalidArgumentError(absl::StrCat("block id is ", static_cast<uint32_t>(block.id),
                                                     ", the source has ", view_.block_count));
    }
    RETURN_IF_ERROR(CheckGenerations(range));
    for (size_t i = 0; i < destination.size(); ++i) {
      memcpy(into.LayerBlock(range.layer, static_cast<uint32_t>(destination[i])),
             view_.LayerBlock(range.layer, static_cast<uint32_t>(range.blocks[i].id)),
             view_.layout.layer_block_bytes());
    }
    LoadFence();
    return CheckGenerations(range);
  }

 private:
  absl::Status CheckGenerations(const AnnounceRange& range) const {
    for (const KvBlockRef& block : range.blocks) {
      const auto index = static_cast<uint32_t>(block.id);
      if (generations_[index].load(std::memory_order_acquire) == block.generation) continue;
      return absl::UnavailableError(
          absl::StrCat("block ", index, " of the source has another owner by now"));
    }
    return absl::OkStatus();
  }

  const kernels::PagedKvView view_;
  const uint64_t file_bytes_;
  const std::atomic<uint64_t>* const generations_;  // view_.block_count of them.
};

absl::StatusOr<std::unique_ptr<RangeReader>> Map(int descriptor, const ShmOffer& offer,
                                                 const kernels::KvLayout& layout) {
  const uint64_t block_count = offer.arena_bytes / layout.block_bytes();
  if (block_count == 0 || block_count > KvBlockPool::kBlockCountMax ||
      block_count * layout.block_bytes() != offer.arena_bytes) {
    return absl::FailedPreconditionError(absl::StrCat("the source's arena has ", offer.arena_bytes,
                                                      " bytes, which are not whole blocks of ",
                                                      layout.block_bytes()));
  }
  const KvArenaExtent extent = ExtentOf(layout, static_cast<uint32_t>(block_count));
  struct stat file = {};
  if (fstat(descriptor, &file) != 0) return SystemError("fstat of the source's arena");
  const int seals = fcntl(descriptor, F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  if (seals < 0 || (seals & kNeeded) != kNeeded ||
      static_cast<uint64_t>(file.st_size) != extent.file_bytes) {
    return absl::FailedPreconditionError("the source's arena is not sealed or not as large as said");
  }
  void* base = mmap(nullptr, extent.file_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) return SystemError("mmap of the source's arena");
  const kernels::PagedKvView view = {.layout = layout,
                                     .block_count = static_cast<uint32_t>(block_count),
                                     .base = static_cast<uint8_t*>(base)};
  return std::make_unique<MappedArena>(view, extent);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmListener>> ShmListener::Start(const KvArena& arena) {
  std::unique_ptr<ShmListener> listener(new ShmListener);
  listener->arena_bytes_ = arena.bytes();
  listener->boot_id_ = BootId();
  if (listener->boot_id_.empty()) return absl::UnavailableError("this kernel has no boot id");
  listener->socket_name_ = absl::StrCat("baton-kv-", base::Id128::Random().ToHex());
  listener->read_only_ =
      open(absl::StrCat("/proc/self/fd/", arena.descriptor()).c_str(), O_RDONLY | O_CLOEXEC);
  if (listener->read_only_ < 0) return SystemError("open of the arena for reading");
  listener->stop_ = eventfd(0, EFD_CLOEXEC);
  if (listener->stop_ < 0) return SystemError("eventfd");
  listener->socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener->socket_ < 0) return SystemError("socket");
  ASSIGN_OR_RETURN(const AbstractAddress at, AddressOf(listener->socket_name_));
  if (bind(listener->socket_, reinterpret_cast<const sockaddr*>(&at.address), at.length) != 0) {
    return SystemError("bind of the arena's socket");
  }
  if (listen(listener->socket_, kListenBacklog) != 0) return SystemError("listen");
  listener->thread_ = std::thread([raw = listener.get()] { raw->Run(); });
  return listener;
}

ShmListener::~ShmListener() {
  if (thread_.joinable()) {
    CHECK(eventfd_write(stop_, 1) == 0);
    thread_.join();
  }
  for (const int descriptor : {read_only_, socket_, stop_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

ShmOffer ShmListener::Offer() {
  ShmOffer offer = {.boot_id = boot_id_,
                    .socket_name = socket_name_,
                    .nonce = std::string(kNonceBytes, '\0'),
                    .arena_bytes = arena_bytes_};
  CHECK(getrandom(offer.nonce.data(), kNonceBytes, 0) == static_cast<ssize_t>(kNonceBytes));
  base::MutexLock lock(mutex_);
  nonces_.insert(offer.nonce);
  return offer;
}

void ShmListener::Forget(const std::string& nonce) {
  base::MutexLock lock(mutex_);
  nonces_.erase(nonce);
}

bool ShmListener::TakeNonce(const std::string& nonce) {
  base::MutexLock lock(mutex_);
  return nonces_.erase(nonce) == 1;
}

void ShmListener::Run() {
  while (true) {
    pollfd ready[] = {{.fd = socket_, .events = POLLIN}, {.fd = stop_, .events = POLLIN}};
    if (poll(ready, 2, -1) < 0 && errno != EINTR) {
      LOG(ERROR) << "the arena's socket stopped: " << strerror(errno);
      return;
    }
    if (ready[1].revents != 0) return;
    const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) Serve(connection);
  }
}

void ShmListener::Serve(int connection) {
  const Descriptor closer(connection);
  if (!IsSameUser(connection)) {
    LOG(WARNING) << "another user's process asked for the arena";
    return;
  }
  SetTimeouts(connection, kNonceTimeout);
  std::string nonce(kNonceBytes, '\0');
  const ssize_t received = recv(connection, nonce.data(), kNonceBytes, MSG_WAITALL);
  if (received != static_cast<ssize_t>(kNonceBytes) || !TakeNonce(nonce)) {
    LOG(WARNING) << "a process without a nonce asked for the arena";
    return;
  }
  if (!SendDescriptor(connection, read_only_)) LOG(WARNING) << "the arena's descriptor was not taken";
}

absl::StatusOr<std::unique_ptr<RangeReader>> ConnectShm(const ShmOffer& offer,
                                                        const kernels::KvLayout& layout,
                                                        absl::Duration timeout) {
  if (offer.boot_id != BootId()) {
    return absl::FailedPreconditionError("the source runs on another host");
  }
  ASSIGN_OR_RETURN(const AbstractAddress at, AddressOf(offer.socket_name));
  const Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return SystemError("socket");
  SetTimeouts(connection.get(), timeout);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) != 0) {
    return SystemError("connect to the source's socket");
  }
  if (!IsSameUser(connection.get())) {
    return absl::FailedPreconditionError("the source's socket is another user's");
  }
  if (send(connection.get(), offer.nonce.data(), offer.nonce.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(offer.nonce.size())) {
    return SystemError("send of the nonce");
  }
  const Descriptor arena(ReceiveDescriptor(connection.get()));
  if (arena.get() < 0) return absl::UnavailableError("the source gave no descriptor");
  return Map(arena.get(), offer, layout);
}

}  // namespace baton::kvstore
