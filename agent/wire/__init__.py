"""Every message that an agent sends or takes, as msgspec structs; JSON keys are the field names.

Invariant: a value that is not known is `None` and is left out of the JSON; it is never 0.
Times are UTC, encoded as ISO 8601; usage intervals are half-open and whole milliseconds.
Money appears only as decimal strings (`usd_per_hour`).
"""

from agent.wire.alerts import Alert as Alert
from agent.wire.alerts import AlertList as AlertList
from agent.wire.alerts import Severity as Severity
from agent.wire.base import WIRE_VERSION as WIRE_VERSION
from agent.wire.base import Message as Message
from agent.wire.base import Problem as Problem
from agent.wire.curves import Curve as Curve
from agent.wire.curves import JobCurves as JobCurves
from agent.wire.events import AlertEvent as AlertEvent
from agent.wire.events import Event as Event
from agent.wire.events import JobEvent as JobEvent
from agent.wire.events import NodeEvent as NodeEvent
from agent.wire.events import NoticeEvent as NoticeEvent
from agent.wire.events import SampleEvent as SampleEvent
from agent.wire.events import encode_event as encode_event
from agent.wire.events import encoder as encoder
from agent.wire.events import event_decoder as event_decoder
from agent.wire.jobs import Attempt as Attempt
from agent.wire.jobs import Enforcement as Enforcement
from agent.wire.jobs import GPU_SHARE_PLACES as GPU_SHARE_PLACES
from agent.wire.jobs import Gang as Gang
from agent.wire.jobs import GangStart as GangStart
from agent.wire.jobs import JOB_ID as JOB_ID
from agent.wire.jobs import Job as Job
from agent.wire.jobs import JobCounts as JobCounts
from agent.wire.jobs import JobList as JobList
from agent.wire.jobs import JobPlan as JobPlan
from agent.wire.jobs import JobSignal as JobSignal
from agent.wire.jobs import JobSpec as JobSpec
from agent.wire.jobs import JobState as JobState
from agent.wire.jobs import JobUsage as JobUsage
from agent.wire.jobs import LogPage as LogPage
from agent.wire.jobs import MpsClient as MpsClient
from agent.wire.jobs import MpsSetting as MpsSetting
from agent.wire.jobs import MpsState as MpsState
from agent.wire.jobs import Notice as Notice
from agent.wire.jobs import NoticeKind as NoticeKind
from agent.wire.jobs import PlanStep as PlanStep
from agent.wire.jobs import Uploaded as Uploaded
from agent.wire.node import Ancestor as Ancestor
from agent.wire.node import Filesystem as Filesystem
from agent.wire.node import Gpu as Gpu
from agent.wire.node import GpuAllocation as GpuAllocation
from agent.wire.node import GpuInventory as GpuInventory
from agent.wire.node import GpuState as GpuState
from agent.wire.node import History as History
from agent.wire.node import HistoryPoint as HistoryPoint
from agent.wire.node import Host as Host
from agent.wire.node import MigInstance as MigInstance
from agent.wire.node import NodeInfo as NodeInfo
from agent.wire.node import OnPremises as OnPremises
from agent.wire.node import PURCHASES as PURCHASES
from agent.wire.node import Process as Process
from agent.wire.node import Purchase as Purchase
from agent.wire.node import Sample as Sample
from agent.wire.node import SensorReport as SensorReport
from agent.wire.node import THROTTLE_REASONS as THROTTLE_REASONS
from agent.wire.orders import AlertPause as AlertPause
from agent.wire.orders import AlertPauses as AlertPauses
from agent.wire.orders import Drain as Drain
from agent.wire.orders import DrainOrder as DrainOrder
from agent.wire.orders import LONGEST_PAUSE_SECONDS as LONGEST_PAUSE_SECONDS
from agent.wire.orders import LONGEST_REASON as LONGEST_REASON
from agent.wire.orders import PauseOrder as PauseOrder
from agent.wire.usage import EnergySource as EnergySource
from agent.wire.usage import Interruption as Interruption
from agent.wire.usage import Placement as Placement
from agent.wire.usage import UsageKind as UsageKind
from agent.wire.usage import UsagePage as UsagePage
from agent.wire.usage import UsageRow as UsageRow
