------------------------------- MODULE agreed -------------------------------
(* The delivery rule of agreed multicast (docs/design/amcast.md): one group of
   three members, an election beside a leader that may live on, and whatever
   other groups say. What has been said is never unsaid: who hears of it may do
   so late, twice or never, and who has crashed takes no more steps. *)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS Alone,    \* messages for this group
          Shared,   \* messages for others, too
          FarMax,   \* no other group's timestamp is higher
          Wrong     \* the mistake that is made, or "nothing"

Members == 1..3
Leader == <<1, 2>>  \* of each epoch
Messages == Alone \cup Shared
Never == 99

VARIABLES log,      \* of each epoch: messages with timestamps, by position
          taken,    \* of each epoch and member: how many positions
          clock,
          at,       \* the epoch that a member has promised
          pledge,   \* its clock when it left the first one
          has,      \* the epoch whose log it has
          base,     \* how long the log was with which the second one began
          far,      \* of each shared message: what the others agreed on, or 0
          told      \* up to where the order is settled, with how many positions
vars == <<log, taken, clock, at, pledge, has, base, far, told>>

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
HasBegun == base # Never

Init == /\ log = <<<<>>, <<>>>>
        /\ taken = [e \in 1..2 |-> [n \in Members |-> 0]]
        /\ clock = [n \in Members |-> 0]
        /\ at = [n \in Members |-> 1]
        /\ pledge = [n \in Members |-> 0]
        /\ has = [n \in Members |-> 1]
        /\ base = Never
        /\ far = [m \in Shared |-> 0]
        /\ told = <<0, 0>>

Time(e, p) == log[e][p][2]
Times == {Time(1, p) : p \in 1..Len(log[1])} \cup {Time(2, p) : p \in 1..Len(log[2])}
         \cup {far[m] : m \in Shared}

\* A clock rises to whatever timestamp was heard of.
Rise(n) == /\ \E t \in Times : t > clock[n] /\ clock' = [clock EXCEPT ![n] = t]
           /\ UNCHANGED <<log, taken, at, pledge, has, base, far, told>>

Propose(e, m) ==
  LET n == Leader[e] IN
  /\ at[n] = e /\ has[n] = e
  /\ \A p \in 1..Len(log[e]) : log[e][p][1] # m
  /\ log' = [log EXCEPT ![e] = Append(@, <<m, clock[n] + 1>>)]
  /\ clock' = [clock EXCEPT ![n] = @ + 1]
  /\ taken' = [taken EXCEPT ![e][n] = Len(log[e]) + 1]
  /\ UNCHANGED <<at, pledge, has, base, far, told>>

Take(n, e) ==
  LET p == taken[e][n] + 1 IN
  /\ has[n] = e
  /\ at[n] = e \/ Wrong = "stale"
  /\ p <= Len(log[e])
  /\ taken' = [taken EXCEPT ![e][n] = p]
  /\ clock' = [clock EXCEPT ![n] = Max(@, Time(e, p))]
  /\ UNCHANGED <<log, at, pledge, has, base, far, told>>

Other(m) == /\ far[m] = 0
            /\ \E t \in 1..FarMax : far' = [far EXCEPT ![m] = t]
            /\ UNCHANGED <<log, taken, clock, at, pledge, has, base, told>>

\* The second member is told to lead; others promise when it asks.
Promise(n) == /\ at[n] = 1 /\ (n = Leader[2] \/ at[Leader[2]] = 2)
              /\ at' = [at EXCEPT ![n] = 2]
              /\ pledge' = [pledge EXCEPT ![n] = clock[n]]
              /\ UNCHANGED <<log, taken, clock, has, base, far, told>>

Begin(with) ==
  LET n == Leader[2]
      count == IF Wrong = "own log" THEN taken[1][n] ELSE Max(taken[1][n], taken[1][with])
      begins == IF Wrong = "own clock" THEN clock[n] ELSE Max(clock[n], pledge[with])
      old == SubSeq(log[1], 1, count)
      new == [p \in 1..count |-> <<old[p][1], begins + p>>] IN
  /\ at[n] = 2 /\ at[with] = 2 /\ with # n /\ ~HasBegun
  /\ base' = count
  /\ log' = [log EXCEPT ![2] = IF Wrong = "timestamp" THEN new ELSE old]
  /\ clock' = [clock EXCEPT ![n] = IF Wrong = "timestamp" THEN begins + count ELSE begins]
  /\ taken' = [taken EXCEPT ![2][n] = count]
  /\ has' = [has EXCEPT ![n] = 2]
  /\ UNCHANGED <<at, pledge, far, told>>

\* It takes over the log with which the second epoch began.
Sync(n) == /\ HasBegun /\ has[n] = 1
           /\ at' = [at EXCEPT ![n] = 2]
           /\ has' = [has EXCEPT ![n] = 2]
           /\ pledge' = [pledge EXCEPT ![n] = IF at[n] = 1 THEN clock[n] ELSE @]
           /\ taken' = [taken EXCEPT ![2][n] = base]
           /\ clock' = [clock EXCEPT ![n] = IF base = 0 THEN @ ELSE Max(@, Time(2, base))]
           /\ UNCHANGED <<log, base, far, told>>

Quorum == IF Wrong = "ack" THEN 1 ELSE 2
IsAgreed(e, p) == Cardinality({n \in Members : taken[e][n] >= p}) >= Quorum
Agreed == UNION {{<<p, log[e][p][1], Time(e, p)>> : p \in {q \in 1..Len(log[e]) : IsAgreed(e, q)}}
                 : e \in 1..2}
\* Positions and final timestamps.
Decided == {<<a[1], IF a[2] \in Shared THEN Max(a[3], far[a[2]]) ELSE a[3]>>
            : a \in {b \in Agreed : b[2] \in Alone \/ far[b[2]] > 0}}
IsDecided(m) == /\ \E a \in Agreed : a[2] = m
                /\ IF m \in Alone THEN TRUE ELSE far[m] > 0

\* The clock of a member, as far as it counts in an epoch.
Counts(e, n) == CASE e = 1 /\ at[n] = 1 -> clock[n]
                  [] e = 1 /\ at[n] = 2 -> IF Wrong = "risen clock" THEN clock[n] ELSE pledge[n]
                  [] e = 2 -> IF has[n] = 2 THEN clock[n] ELSE 0
Second(e) == LET c == [n \in Members |-> Counts(e, n)] IN
             CHOOSE t \in {c[n] : n \in Members} :
                /\ Cardinality({n \in Members : c[n] >= t}) >= 2
                /\ Cardinality({n \in Members : c[n] > t}) < 2

\* Somebody who knows `known` positions, the first `count` of them decided, tells a barrier.
Tell(e, known, count) ==
  LET pending == IF count = known \/ Wrong = "pending" THEN Never ELSE Time(e, count + 1) - 1
      all == known = Len(log[e]) \/ Wrong = "gaps"
      seen == IF all THEN Counts(e, Leader[e]) ELSE Time(e, known + 1) - 1
      quorum == IF Wrong = "quorum" THEN Never ELSE Second(e)
      barrier == Min(Min(pending, seen), quorum) IN
  /\ told = <<0, 0>> /\ barrier > 0
  /\ e = 1 \/ HasBegun
  /\ \A p \in 1..count : IsDecided(log[e][p][1])
  /\ told' = <<barrier, count>>
  /\ UNCHANGED <<log, taken, clock, at, pledge, has, base, far>>

Next == \/ \E n \in Members : Rise(n) \/ Promise(n) \/ Begin(n) \/ Sync(n)
        \/ \E e \in 1..2 : \/ \E m \in Messages : Propose(e, m)
                           \/ \E n \in Members : Take(n, e)
                           \/ \E known \in 0..Len(log[e]) : \E count \in 0..known : Tell(e, known, count)
        \/ \E m \in Shared : Other(m)
Spec == Init /\ [][Next]_vars

\* Whether anything may still come at or below the barrier that was told: else the histories that
\* follow need no look, for what else is checked holds or not without a barrier, too.
IsDangerous ==
  \/ told = <<0, 0>> \/ ~HasBegun
  \/ \E e \in 1..2 : \E p \in (told[2] + 1)..Len(log[e]) : Time(e, p) <= told[1]
  \/ at[1] = 1 /\ clock[1] < told[1]
  \/ clock[2] < told[1]

-----------------------------------------------------------------------------
\* One message a position, one position and one timestamp a message: so final timestamps are the
\* same in all groups, and so is the order.
Agreement == \A a, b \in Agreed : (a[1] = b[1] \/ a[2] = b[2]) => a = b
\* Nothing comes at or below a barrier that was told.
Settled == \A d \in Decided : d[1] > told[2] => d[2] > told[1]
=============================================================================
