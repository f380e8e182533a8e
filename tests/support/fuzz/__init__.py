"""A fuzz of the spoof guard against an oracle written apart from it: from its pages, the RFCs, and how receivers read frames.

No module here knows a rule of the guard. The oracle judges frames that have ARRIVED; how they were sent does not matter to it.
"""
