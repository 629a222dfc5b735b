// A peer process dies or freezes in the middle of hand-offs: the other side ends each of them once and gets its blocks back,
// within a second or within the no-progress deadline.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "absl/strings/escaping.h"
#include "tests/kvstore/transfer/peer_loss.h"

extern char** environ;

namespace baton::kvstore {
namespace {

// A handoff_peer; killed at the latest with this object.
class PeerProcess {
 public:
  explicit PeerProcess(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), BATON_HANDOFF_PEER);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int input[2], output[2];
    CHECK(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    CHECK(posix_spawn(&pid_, BATON_HANDOFF_PEER, &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    output_ = output[0];
  }

  ~PeerProcess() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(input_);
    close(output_);
  }

  void Signal(int number) { CHECK(kill(pid_, number) == 0); }

  std::string ReadLine() {
    std::string line;
    char byte;
    while (read(output_, &byte, 1) == 1 && byte != '\n') line.push_back(byte);
    return line;
  }

 private:
  pid_t pid_ = 0;
  int input_ = -1;
  int output_ = -1;
};

struct Loss {
  const char* name;
  TransportKind transport;
  int signal;
  absl::Duration noticed_within;
};

// The promises: a second, and the default deadline; beyond each, room for a loaded machine's scheduling.
constexpr absl::Duration kSlack = absl::Seconds(1);
const Loss kLosses[] = {
    {"shm_killed", TransportKind::kShm, SIGKILL, absl::Seconds(1)},
    {"grpc_killed", TransportKind::kGrpc, SIGKILL, absl::Seconds(1)},
    {"shm_stopped", TransportKind::kShm, SIGSTOP, absl::Seconds(3)},
    {"grpc_stopped", TransportKind::kGrpc, SIGSTOP, absl::Seconds(3)},
};

class PeerLossTest : public testing::TestWithParam<Loss> {
 protected:
  // Signals the peer and waits for the end of each hand-off.
  static void Lose(PeerProcess& peer, RecordedEvents& events) {
    const absl::Time begin = absl::Now();
    peer.Signal(GetParam().signal);
    for (uint32_t i = 0; i < kPeerHandoffs; ++i) {
      const absl::Status status = events.Await(MakeKey(i));
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    }
    EXPECT_LE(absl::Now() - begin, GetParam().noticed_within + kSlack);
  }

  static void AwaitBytes(WorkerParts& parts) {
    const std::string nothing = "transport=\"" + std::string(Name(GetParam().transport)) + "\"} 0\n";
    const absl::Time until = absl::Now() + kPatience;
    while (BytesLine(parts).ends_with(nothing)) {
      ASSERT_LT(absl::Now(), until) << "no bytes came";
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  // The line of the byte counter of this transport.
  static std::string BytesLine(WorkerParts& parts) {
    std::istringstream text(parts.metrics.Text());
    std::string line;
    while (std::getline(text, line)) {
      if (line.starts_with("baton_handoff_bytes_total") &&
          line.find("\"" + std::string(Name(GetParam().transport)) + "\"") != std::string::npos) {
        return line + "\n";
      }
    }
    return "";
  }
};

TEST_P(PeerLossTest, DecodeOutlivesItsPrefillWorker) {
  LinkReceiverOptions options;
  options.transports = {GetParam().transport};
  DecodeSide decode(kPeerBlocks, options, nullptr, kPeerLayout);
  const base::Id128 prefill = base::Id128::Random();
  for (uint32_t i = 0; i < kPeerHandoffs; ++i) {
    decode.Expect(MakeKey(i), prefill, PeerTokens(i), kPeerHandoffBlocks);
  }
  PeerProcess peer({"prefill", std::string(Name(GetParam().transport)), decode.server->address(),
                    decode.parts.incarnation.ToHex(), prefill.ToHex()});
  ASSERT_EQ(peer.ReadLine(), "begun");
  AwaitBytes(decode.parts);
  Lose(peer, decode.events);
  EXPECT_EQ(decode.parts.pool.counts().held, 0u);
  EXPECT_EQ(decode.parts.pool.counts().reserved, 0u);
}

TEST_P(PeerLossTest, PrefillOutlivesItsDecodeWorker) {
  LinkSenderOptions options;
  options.transports = {GetParam().transport};
  PrefillSide prefill(kPeerBlocks, options, nullptr, kPeerLayout);
  PeerProcess peer({"decode", std::string(Name(GetParam().transport)),
                    prefill.parts.incarnation.ToHex()});
  std::istringstream line(peer.ReadLine());
  std::string address, incarnation;
  ASSERT_TRUE(line >> address >> incarnation);
  const auto id = base::Id128::FromBytes(absl::HexStringToBytes(incarnation));
  const std::vector<KvBlockId> blocks = BeginAll(prefill, {address, *id});
  AwaitBytes(prefill.parts);
  Lose(peer, prefill.events);
  EXPECT_EQ(prefill.sender->pins().owed_bytes, 0u);
  prefill.parts.pool.Release(blocks);
}

INSTANTIATE_TEST_SUITE_P(Losses, PeerLossTest, testing::ValuesIn(kLosses),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton::kvstore
