// The 1Pipe testbed in ns-3: packet-hop events a second on one core.
//
// 32 hosts, 4 ToR, 4 spine and 2 core switches, cabled as `Shape::testbed()` in
// protocol/topology/src/shape.rs; 512 processes, each with a UDP socket, all to all. ns-3 carries
// datagrams here and nothing else: no total order, no acknowledgements, no checks.
//
// README.md has the commands.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace ns3;

namespace
{

constexpr uint32_t PODS = 2;
constexpr uint32_t TORS = 2;       // of a pod
constexpr uint32_t RACK = 8;       // hosts of a ToR
constexpr uint32_t SPINES = 2;     // of a pod
constexpr uint32_t TOR_LINKS = 4;  // between a ToR and a spine
constexpr uint32_t CORES = 2;
constexpr uint32_t CORE_LINKS = 4; // between a spine and a core
constexpr uint32_t HOSTS = PODS * TORS * RACK;
constexpr uint32_t FIRST_TOR = HOSTS;
constexpr uint32_t FIRST_SPINE = FIRST_TOR + PODS * TORS;
constexpr uint32_t FIRST_CORE = FIRST_SPINE + PODS * SPINES;
constexpr uint32_t NODES = FIRST_CORE + CORES;

constexpr uint32_t PROCESSES_PER_HOST = 16;
constexpr uint32_t PROCESSES = HOSTS * PROCESSES_PER_HOST;
constexpr uint16_t FIRST_UDP_PORT = 9000;

uint64_t g_hops = 0;
uint64_t g_drops = 0;
uint64_t g_sent = 0;
uint64_t g_received = 0;

void
CountHop(Ptr<const Packet>)
{
    ++g_hops;
}

void
CountDrop(Ptr<const Packet>)
{
    ++g_drops;
}

/// The finaliser of SplitMix64, as protocol/topology/src/spread.rs has it.
uint64_t
Mix(uint64_t bits)
{
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
    return bits ^ (bits >> 31);
}

/// With array routing hosts have consecutive addresses, so that a table can be an array.
Ipv4Address
HostAddress(uint32_t host)
{
    return Ipv4Address(0x0a000001 + host);
}

/// Forwards by an array of equal paths per destination host, and one hash per packet: what the Rust
/// simulator's switches do, and about the least that a routing protocol can cost in ns-3. Routes
/// are made once for each port.
class ArrayRouting : public Ipv4RoutingProtocol
{
  public:
    explicit ArrayRouting(uint32_t node)
        : m_node(node),
          m_paths(HOSTS)
    {
    }

    void AddPath(uint32_t host, Ptr<Ipv4Route> route)
    {
        m_paths[host].push_back(route);
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>,
                               const Ipv4Header& header,
                               Ptr<NetDevice>,
                               Socket::SocketErrno& error) override
    {
        auto route = Choose(header);
        error = route ? Socket::ERROR_NOTERROR : Socket::ERROR_NOROUTETOHOST;
        return route;
    }

    bool RouteInput(Ptr<const Packet> packet,
                    const Ipv4Header& header,
                    Ptr<const NetDevice> device,
                    UnicastForwardCallback forward,
                    MulticastForwardCallback,
                    LocalDeliverCallback deliver,
                    ErrorCallback error) override
    {
        if (m_node < HOSTS)
        {
            if (header.GetDestination() != HostAddress(m_node))
            {
                return false;
            }
            deliver(packet, header, m_ipv4->GetInterfaceForDevice(device));
            return true;
        }
        auto route = Choose(header);
        if (!route)
        {
            error(packet, header, Socket::ERROR_NOROUTETOHOST);
            return false;
        }
        forward(route, packet, header);
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override
    {
    }

    void NotifyInterfaceDown(uint32_t) override
    {
    }

    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void SetIpv4(Ptr<Ipv4> ipv4) override
    {
        m_ipv4 = ipv4;
    }

    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override
    {
    }

  private:
    Ptr<Ipv4Route> Choose(const Ipv4Header& header) const
    {
        const uint32_t host = header.GetDestination().Get() - HostAddress(0).Get();
        if (host >= HOSTS || m_paths[host].empty())
        {
            return nullptr;
        }
        const auto& paths = m_paths[host];
        // Addresses only: IP does not see the ports here. 16 x 16 pairs of processes share a path.
        const uint64_t source = header.GetSource().Get();
        const uint64_t flow = source << 32 | header.GetDestination().Get();
        const uint64_t draw = Mix(flow ^ m_node * 0x9e3779b97f4a7c15ULL);
        return paths[(draw >> 32) * paths.size() >> 32];
    }

    uint32_t m_node;
    Ptr<Ipv4> m_ipv4;
    std::vector<std::vector<Ptr<Ipv4Route>>> m_paths;
};

/// One process: a socket that sends `fanOut` datagrams to the next processes in turn at a fixed
/// interval, and discards what it receives.
class Process
{
  public:
    Process(uint32_t id,
            Ptr<Socket> socket,
            Time interval,
            Time until,
            uint32_t fanOut,
            uint32_t bytes)
        : m_id(id),
          m_socket(socket),
          m_interval(interval),
          m_until(until),
          m_fanOut(fanOut),
          m_bytes(bytes)
    {
        m_socket->SetRecvCallback(MakeCallback(&Process::Receive, this));
    }

    void SetPeers(const std::vector<InetSocketAddress>* peers)
    {
        m_peers = peers;
    }

    void Scatter()
    {
        for (uint32_t message = 0; message < m_fanOut; ++message)
        {
            m_turn = m_turn % (PROCESSES - 1) + 1;
            const auto& to = (*m_peers)[(m_id + m_turn) % PROCESSES];
            if (m_socket->SendTo(Create<Packet>(m_bytes), 0, to) >= 0)
            {
                ++g_sent;
            }
        }
        if (Simulator::Now() + m_interval < m_until)
        {
            Simulator::Schedule(m_interval, &Process::Scatter, this);
        }
    }

  private:
    void Receive(Ptr<Socket> socket)
    {
        while (socket->Recv())
        {
            ++g_received;
        }
    }

    uint32_t m_id;
    uint32_t m_turn = 0;
    Ptr<Socket> m_socket;
    Time m_interval;
    Time m_until;
    uint32_t m_fanOut;
    uint32_t m_bytes;
    const std::vector<InetSocketAddress>* m_peers = nullptr;
};

double
CpuSeconds()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The hosts below a node: from, and how many.
std::pair<uint32_t, uint32_t>
HostsBelow(uint32_t node)
{
    if (node < FIRST_TOR)
    {
        return {node, 1};
    }
    if (node < FIRST_SPINE)
    {
        return {(node - FIRST_TOR) * RACK, RACK};
    }
    if (node < FIRST_CORE)
    {
        return {(node - FIRST_SPINE) / SPINES * TORS * RACK, TORS * RACK};
    }
    return {0, HOSTS};
}

} // namespace

int
main(int argc, char* argv[])
{
    std::string routing = "array";
    std::string scheduler = "ns3::MapScheduler";
    bool queueDiscs = false;
    uint32_t durationUs = 300;
    uint32_t intervalNs = 2000;
    uint32_t fanOut = 8;
    uint32_t bytes = 116;
    CommandLine command(__FILE__);
    command.AddValue("routing", "array (hash) or global (RandomEcmpRouting)", routing);
    command.AddValue("scheduler", "the TypeId of the event queue", scheduler);
    command.AddValue("queueDiscs", "keep the default FqCoDel in front of each device", queueDiscs);
    command.AddValue("durationUs", "how long processes send, in us of virtual time", durationUs);
    command.AddValue("intervalNs", "between two scatterings of a process, in ns", intervalNs);
    command.AddValue("fanOut", "datagrams of a scattering", fanOut);
    command.AddValue("bytes", "UDP payload: 64 and the 52 of a 1Pipe header", bytes);
    command.Parse(argc, argv);
    NS_ABORT_MSG_IF(routing != "array" && routing != "global", "unknown routing " << routing);
    const bool isArray = routing == "array";

    // A byte takes 80 ps at 100 Gbit/s: nanoseconds are too coarse.
    Time::SetResolution(Time::PS);
    ObjectFactory factory;
    factory.SetTypeId(scheduler);
    Simulator::SetScheduler(factory);
    Config::SetDefault("ns3::Ipv4GlobalRouting::RandomEcmpRouting", BooleanValue(true));

    NodeContainer nodes;
    nodes.Create(NODES);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(nodes);

    // 500 ns and 1 MiB as in sim/network/src/link.rs. The wire's overhead there is 66 bytes; IPv4,
    // UDP and PPP are 30 of them, the gap is the rest.
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", StringValue("100Gbps"));
    cable.SetDeviceAttribute("InterframeGap", TimeValue(PicoSeconds(36 * 80)));
    cable.SetChannelAttribute("Delay", StringValue("500ns"));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1048576B"));

    std::vector<std::pair<uint32_t, uint32_t>> cables; // lower and upper end
    for (uint32_t host = 0; host < HOSTS; ++host)
    {
        cables.emplace_back(host, FIRST_TOR + host / RACK);
    }
    for (uint32_t tor = 0; tor < PODS * TORS; ++tor)
    {
        for (uint32_t link = 0; link < SPINES * TOR_LINKS; ++link)
        {
            const uint32_t spine = tor / TORS * SPINES + link / TOR_LINKS;
            cables.emplace_back(FIRST_TOR + tor, FIRST_SPINE + spine);
        }
    }
    for (uint32_t spine = 0; spine < PODS * SPINES; ++spine)
    {
        for (uint32_t link = 0; link < CORES * CORE_LINKS; ++link)
        {
            cables.emplace_back(FIRST_SPINE + spine, FIRST_CORE + link / CORE_LINKS);
        }
    }

    std::vector<Ptr<ArrayRouting>> tables;
    if (isArray)
    {
        for (uint32_t node = 0; node < NODES; ++node)
        {
            auto table = Create<ArrayRouting>(node);
            tables.push_back(table);
            nodes.Get(node)->GetObject<Ipv4>()->SetRoutingProtocol(table);
        }
    }
    // Each cable is a network of its own; with global routing a host has the address of its end.
    std::vector<Ipv4Address> hostAddresses(HOSTS);
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.255.252");
    for (const auto& [lower, upper] : cables)
    {
        NetDeviceContainer devices = cable.Install(nodes.Get(lower), nodes.Get(upper));
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        addresses.NewNetwork();
        if (!queueDiscs)
        {
            TrafficControlHelper().Uninstall(devices);
        }
        for (uint32_t end = 0; end < 2; ++end)
        {
            devices.Get(end)->TraceConnectWithoutContext("PhyRxEnd", MakeCallback(&CountHop));
            devices.Get(end)->TraceConnectWithoutContext("MacTxDrop", MakeCallback(&CountDrop));
        }
        if (lower < HOSTS)
        {
            hostAddresses[lower] = interfaces.GetAddress(0);
        }
        if (!isArray)
        {
            continue;
        }
        if (lower < HOSTS)
        {
            auto [ipv4, interface] = interfaces.Get(0);
            while (ipv4->GetNAddresses(interface) > 0)
            {
                ipv4->RemoveAddress(interface, 0u);
            }
            ipv4->AddAddress(interface, {HostAddress(lower), Ipv4Mask("255.255.255.255")});
            hostAddresses[lower] = HostAddress(lower);
        }
        const auto [first, count] = HostsBelow(lower);
        for (uint32_t end = 0; end < 2; ++end)
        {
            auto route = Create<Ipv4Route>();
            route->SetOutputDevice(devices.Get(end));
            route->SetGateway(interfaces.GetAddress(1 - end));
            if (lower < HOSTS && end == 0)
            {
                route->SetSource(HostAddress(lower));
            }
            for (uint32_t host = 0; host < HOSTS; ++host)
            {
                const bool isBelow = host >= first && host - first < count;
                if (isBelow == (end == 1))
                {
                    tables[end == 0 ? lower : upper]->AddPath(host, route);
                }
            }
        }
    }
    if (isArray)
    {
        // Messages to the own host go over the loopback device, as they do with global routing.
        for (uint32_t host = 0; host < HOSTS; ++host)
        {
            auto ipv4 = nodes.Get(host)->GetObject<Ipv4>();
            auto route = Create<Ipv4Route>();
            route->SetOutputDevice(ipv4->GetNetDevice(0));
            route->SetGateway(Ipv4Address::GetLoopback());
            route->SetSource(HostAddress(host));
            tables[host]->AddPath(host, route);
        }
    }
    else
    {
        Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    }

    std::vector<InetSocketAddress> peers;
    std::vector<Process> processes;
    processes.reserve(PROCESSES); // callbacks keep their addresses
    auto random = CreateObject<UniformRandomVariable>();
    for (uint32_t id = 0; id < PROCESSES; ++id)
    {
        const uint32_t host = id / PROCESSES_PER_HOST;
        const auto port = static_cast<uint16_t>(FIRST_UDP_PORT + id % PROCESSES_PER_HOST);
        peers.emplace_back(hostAddresses[host], port);
        auto socket = Socket::CreateSocket(nodes.Get(host), UdpSocketFactory::GetTypeId());
        NS_ABORT_IF(socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), port)) != 0);
        processes.emplace_back(id,
                               socket,
                               NanoSeconds(intervalNs),
                               MicroSeconds(durationUs),
                               fanOut,
                               bytes);
        Simulator::Schedule(PicoSeconds(random->GetInteger(0, intervalNs * 1000 - 1)),
                            &Process::Scatter,
                            &processes.back());
    }
    for (auto& process : processes)
    {
        process.SetPeers(&peers);
    }

    const auto start = std::chrono::steady_clock::now();
    const double cpuStart = CpuSeconds();
    Simulator::Run();
    const double cpu = CpuSeconds() - cpuStart;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const double wall = elapsed.count();
    const double events = Simulator::GetEventCount();

    std::printf("routing=%s scheduler=%s queueDiscs=%d\n",
                routing.c_str(),
                scheduler.c_str(),
                queueDiscs);
    std::printf("sent %lu, received %lu, dropped %lu; %.0f us of virtual time\n",
                g_sent,
                g_received,
                g_drops,
                Simulator::Now().GetSeconds() * 1e6);
    std::printf("%lu hops, %.0f events\n", g_hops, events);
    std::printf("wall %.3f s: %.0f hops/s, %.0f events/s\n", wall, g_hops / wall, events / wall);
    std::printf("cpu %.3f s: %.0f hops/s, %.0f events/s\n", cpu, g_hops / cpu, events / cpu);
    Simulator::Destroy();
    return 0;
}
