"""What the purchase planner left out, and what each way to avoid downtime would mean."""

from __future__ import annotations

from tidemill.model.planner_reasons import MitigationNote, MitigationNoteKind, OfferRefusal, OfferRefusalKind
from tidemill.spec import names
from tidemill.wording.templates import Sentence, fill

OFFER_REFUSALS: dict[OfferRefusalKind, Sentence[OfferRefusal]] = {
    OfferRefusalKind.STALE: "seen {length} ago: it may be gone",
    OfferRefusalKind.WRONG_COUNT: "a block has 1 to {of} instances, not {count}",
    OfferRefusalKind.STARTS_TOO_SOON: "it starts sooner than {length} from now",
    OfferRefusalKind.STARTS_TOO_FAR_AHEAD: "it starts more than 8 weeks ahead",
    OfferRefusalKind.STARTS_AFTER_CALENDAR: "it starts after the calendar ends",
    OfferRefusalKind.NO_SUCH_BLOCK: "EC2 sells no block of {length} like this",
    OfferRefusalKind.OVER_CEILING: lambda refusal: (
        f"${refusal.fee_usd:,} is over the ceiling of ${refusal.limit_usd:,} for one purchase"
    ),
    OfferRefusalKind.NO_POOL: "no pool may use its type and zone",
    OfferRefusalKind.BLOCK_NOT_HELD: "{name} is no block that is held",
    OfferRefusalKind.BLOCK_NOT_PAID: "{name} is not paid, or has an extension that is not",
    OfferRefusalKind.EXTENSIONS_CLOSED: "extensions are sold from 56 days to 1 hour before the end",
    OfferRefusalKind.NO_SUCH_EXTENSION: "EC2 sells no extension by {length} of this block",
}
MITIGATION_NOTES: dict[MitigationNoteKind, Sentence[MitigationNote]] = {
    MitigationNoteKind.EXTEND_WITH: "extend {name} with {offer}",
    MitigationNoteKind.BUY_EARLIER: "buy {offer}, which starts in time",
    MitigationNoteKind.BUY_START_NOW: "buy {offer}, which starts now and runs beside both",
    MitigationNoteKind.OVERLAPS: "{name} overlaps already, by {days}d",
    MitigationNoteKind.BUY_INSTEAD: "{offer} instead of {name}: it starts in time",
    MitigationNoteKind.LASTS_LONG_ENOUGH: "{offer} keeps it long enough",
    MitigationNoteKind.RUNS_BESIDE: "{offer} runs beside both",
    MitigationNoteKind.BRIDGE: lambda note: (
        f"{note.count} {note.name} on demand at ${note.usd_h:,.2f} an hour each, if EC2 has them{_needs(note)}"
    ),
    MitigationNoteKind.BRIDGE_LATER: "{count} {name} on demand, if EC2 has them then",
    MitigationNoteKind.EXTENSION_ESTIMATED: "extend {name} by {days}d, estimated at its rate; EC2 has shown no offer",
    MitigationNoteKind.EARLIER_ESTIMATED: (
        "a block of {count} that starts a day before, estimated at the rate of {name}; EC2 has shown no offer"
    ),
    MitigationNoteKind.START_NOW_ESTIMATED: (
        "a start-now block of {count} for a day, estimated at the rate of {name}; ask EC2 within the last day"
    ),
    MitigationNoteKind.RATE_OF_SUCCESSOR: "estimated at the rate of {name}; EC2 shows no such offer",
    MitigationNoteKind.RATE_OF_BLOCK: (
        "estimated at the rate of {name}; EC2 shows no such offer, and extensions are not guaranteed"
    ),
    MitigationNoteKind.RATE_OF_EXTENSION: (
        "estimated at the rate of {offer}, an extension by {days}d; EC2 has shown none of this length"
    ),
    MitigationNoteKind.NOT_A_CAPACITY_BLOCK: "{name} is no Capacity Block",
    MitigationNoteKind.EXTENSION_UNPAID: "an extension of {name} is not paid yet; another must wait for it",
    MitigationNoteKind.EXTENSIONS_CLOSED: "{name} can no longer be extended: EC2 asks for an hour",
    MitigationNoteKind.LONGER_THAN_LONGEST: "{name} would be longer than 182 days",
    MitigationNoteKind.SUCCESSOR_BOUGHT: "{name} is bought: its start cannot be moved",
    MitigationNoteKind.NO_SUCCESSOR: "no block takes over",
    MitigationNoteKind.FEE_UNKNOWN: "EC2 shows no extension of {name}, and its fee is not known",
    MitigationNoteKind.NO_OFFER_OVER_GAP: "EC2 shows none that lasts over the gap; ask again within the last day",
    MitigationNoteKind.BRIDGED_ALREADY: (
        "on-demand nodes are launched for it already, one wave at a time; by scale all start at once"
    ),
    MitigationNoteKind.NO_ON_DEMAND_PRICE: "no on-demand price of {name} is known",
    MitigationNoteKind.NO_ON_DEMAND_TYPE: "no type of the pool may be run on demand in this number",
}


def offer_refusal_sentence(refusal: OfferRefusal) -> str:
    return fill(OFFER_REFUSALS[refusal.kind], refusal)


def mitigation_sentence(note: MitigationNote | None) -> str:
    """Empty: nothing is known of it."""
    return fill(MITIGATION_NOTES[note.kind], note) if note is not None else ""


def _needs(note: MitigationNote) -> str:
    needs = []
    if note.pool:
        needs.append(f"pool {note.pool} must list on-demand with its caps")
    if note.workload:
        needs.append(f'{note.workload} must say {names.OVERFLOW}: "true"')
    return f" ({'; '.join(needs)})" if needs else ""
